//! Text of tests of several rows a thread, and of the loop over the rows that are left.

use super::statement::push_statement;
use super::text::Text;
use super::{code, probe};
use crate::program::{Code, FRONT_ITEMS, Front, Item, Nodes, Statement, Variable};
use crate::value::CType;

/// Lists the rows of the turn that begins with row `first`.
pub(super) fn push(text: &mut Text, nodes: &Nodes, front: &Front) {
    let Front { rows, block_threads: threads, offset, is_ordered, items } = front;
    text.push(&format!("const RowQueue queue = row_queue({offset});"));
    text.push("clear_queue(queue);");
    let turn_items = if *is_ordered { "order.items" } else { "turn_items" };
    text.text.push_str("#pragma unroll 1\n");
    text.open(&format!("for (u32 step = 0; step < {turn_items}; step += {FRONT_ITEMS})"));
    text.push(&format!("bool alives[{FRONT_ITEMS}];"));
    // The last step of a turn may have fewer rows.
    open_items(text, *threads, &[]);
    text.push(&format!("alive = step + item < {turn_items} && row < {rows};"));
    text.close("}");
    let mut declared: Vec<(Variable, CType)> = vec![];
    for item in items {
        let own = declared_by(item);
        for &(variable, c_type) in &own {
            text.line(|line| {
                line.push_str(&format!("{c_type} "));
                code::push_variable(line, variable);
                line.push_str(&format!("s[{FRONT_ITEMS}];"));
            });
        }
        declared.extend(own);
        open_items(text, *threads, &declared);
        push_item(text, nodes, item);
        text.close("}");
    }
    text.push(&format!("push_rows<{FRONT_ITEMS}>(queue, step * {threads}, {threads}, alives);"));
    text.close("}");
    text.push("__syncthreads();");
    text.push("const u32 queued = *queue.count;");
}

/// Variables that an item declares. Later items see them: each row of a thread has its own.
fn declared_by(item: &Item) -> Vec<(Variable, CType)> {
    match item {
        Item::Section { declarations, .. } => declarations.iter().map(|it| (it.variable, it.c_type)).collect(),
        Item::Find(find) => vec![(Variable::Match(find.number), CType::U64)],
        Item::Statement(Statement::Constant(variable, c_type, _)) => vec![(*variable, *c_type)],
        _ => vec![],
    }
}

/// What an item does with a row; its variables are declared.
fn push_item(text: &mut Text, nodes: &Nodes, item: &Item) {
    let assign = |text: &mut Text, variable: Variable, value: Code| {
        push_statement(text, nodes, &Statement::Assign(variable, value));
    };
    match item {
        Item::Section { alive, declarations, statements } => {
            declarations.iter().for_each(|it| assign(text, it.variable, it.initial));
            if !statements.is_empty() {
                text.open(&format!("if ({alive})"));
                statements.iter().for_each(|statement| push_statement(text, nodes, statement));
                text.close("}");
            }
        }
        Item::Statement(Statement::Constant(variable, _, value)) => assign(text, *variable, *value),
        Item::Statement(statement) => push_statement(text, nodes, statement),
        Item::Find(find) => probe::find_declared(text, nodes, find),
        _ => {}
    }
}

/// Opens the loop over the rows that are listed; `choose`: what stands at its begin.
pub(super) fn open_queue(text: &mut Text, threads: u32, choose: &str) {
    text.text.push_str("#pragma unroll 1\n");
    text.open(&format!("for (u32 item = 0; item * {threads} < queued; ++item)"));
    text.text.push_str(choose);
    text.push(&format!("const u32 listed = item * {threads} + threadIdx.x;"));
    text.push("bool alive = listed < queued;");
    text.push("const u64 row = first + (alive ? queue.rows[listed] : 0);");
}

/// Opens a loop over the rows of a thread that are tested together, with what is known of each.
fn open_items(text: &mut Text, threads: u32, known: &[(Variable, CType)]) {
    text.push("WJ_UNROLL");
    text.open(&format!("for (u32 item = 0; item < {FRONT_ITEMS}; ++item)"));
    text.push(&format!("const u64 row = first + (step + item) * {threads} + threadIdx.x;"));
    text.push(&format!("bool& {} = alives[item];", Variable::Alive));
    for &(variable, c_type) in known {
        text.line(|line| {
            line.push_str(&format!("{c_type}& "));
            code::push_variable(line, variable);
            line.push_str(" = ");
            code::push_variable(line, variable);
            line.push_str("s[item];");
        });
    }
}
