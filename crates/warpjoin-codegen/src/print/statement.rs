//! Text of statements.

use super::code::{push, push_field, push_variable};
use super::group;
use super::text::Text;
use crate::program::{Branch, Case, Code, Counter, Declaration, Nodes, Statement, Variable};
use crate::value::CType;

/// Adds the lines of a statement.
pub(super) fn push_statement(text: &mut Text, nodes: &Nodes, statement: &Statement) {
    match statement {
        Statement::Constant(variable, c_type, code) => text.line(|line| {
            line.push_str("const ");
            push_declaration(line, nodes, *variable, *c_type, *code);
        }),
        Statement::Declare(declaration) => declare(text, nodes, declaration),
        Statement::Assign(variable, code) => text.line(|line| {
            push_variable(line, *variable);
            line.push_str(" = ");
            push(line, nodes, *code);
            line.push(';');
        }),
        Statement::Raise { condition, status, control } => text.line(|line| {
            line.push_str("if (");
            push(line, nodes, *condition);
            line.push_str(") raise_status(");
            push_field(line, *control);
            line.push_str(", ");
            line.push_str(status.name());
            line.push_str(");");
        }),
        Statement::Case(case) => push_case(text, nodes, case),
        Statement::Store { field, code, is_once: true } => text.line(|line| {
            line.push_str("store_once(");
            push_field(line, *field);
            line.push_str(" + place, ");
            push(line, nodes, *code);
            line.push_str(");");
        }),
        Statement::Store { field, code, is_once: false } => text.line(|line| {
            push_field(line, *field);
            line.push_str("[place] = ");
            push(line, nodes, *code);
            line.push(';');
        }),
        Statement::FillSlot { table, key, value, control } => {
            text.line(|line| {
                line.push_str("fill_slot(");
                push_field(line, *table);
                for code in [*key, *value] {
                    line.push_str(", ");
                    push(line, nodes, code);
                }
                line.push_str(", ");
                push_field(line, *control);
                line.push_str(");");
            });
            text.line(|line| line.push_str("++written;"));
        }
        Statement::EndSearch { found, alive } => {
            text.push(&format!("{found} = any_of_lanes({found}, {});", Variable::Slices));
            text.push(&format!("{alive} = {alive} && {} == 0;", Variable::Slice));
        }
        Statement::SetBit { table, key } => {
            text.line(|line| {
                line.push_str("set_in_bitmap(");
                push_field(line, *table);
                line.push_str(", ");
                push(line, nodes, *key);
                line.push_str(");");
            });
            text.line(|line| line.push_str("++written;"));
        }
        Statement::Count { control, counter, number } => text.line(|line| {
            let word = match counter {
                Counter::Probes => "PROBES",
                Counter::Pruned => "PRUNED",
            };
            line.push_str(&format!("atomicAdd(&{control}[WJ_CONTROL_{word}], (u64)(i64){number});"));
        }),
        Statement::Keep { array, code } => text.line(|line| {
            push_variable(line, *array);
            line.push_str("[item] = ");
            push(line, nodes, *code);
            line.push(';');
        }),
        Statement::PlaceInPartition { hash, bits, skipped_bits } => text.line(|line| {
            line.push_str("if (asked < tile_rows) places[item] = partition_of(");
            push(line, nodes, *hash);
            line.push_str(" << ");
            push_field(line, *skipped_bits);
            line.push_str(", (u32)");
            push_field(line, *bits);
            line.push_str(");");
        }),
        Statement::Accumulate(accumulate) => {
            group::accumulate(nodes, accumulate).iter().for_each(|merge| text.line(|line| line.push_str(merge)));
        }
    }
}

/// Adds the line that declares a variable.
pub(super) fn declare(text: &mut Text, nodes: &Nodes, declaration: &Declaration) {
    let Declaration { variable, c_type, initial } = *declaration;
    text.line(|line| push_declaration(line, nodes, variable, c_type, initial));
}

fn push_declaration(line: &mut String, nodes: &Nodes, variable: Variable, c_type: CType, code: Code) {
    line.push_str(c_type.name());
    line.push(' ');
    push_variable(line, variable);
    line.push_str(" = ");
    push(line, nodes, code);
    line.push(';');
}

/// Nested ifs.
fn push_case(text: &mut Text, nodes: &Nodes, case: &Case) {
    let Case { branches, otherwise } = case;
    for Branch { before, condition, then } in branches {
        before.iter().for_each(|statement| push_statement(text, nodes, statement));
        text.line(|line| {
            line.push_str("if (");
            push(line, nodes, *condition);
            line.push_str(") {");
        });
        then.iter().for_each(|statement| push_statement(text, nodes, statement));
        text.line(|line| line.push_str("} else {"));
    }
    otherwise.iter().for_each(|statement| push_statement(text, nodes, statement));
    text.line(|line| line.extend(std::iter::repeat_n('}', branches.len())));
}
