//! Makes programs shorter, once all instructions are there and before registers are allocated.

mod fuse;
mod loads;
mod scopes;
mod uniform;
mod values;

use super::builder::{Builder, Made};
use values::drop_unread;

/// Makes a program shorter; its rows stay the same.
pub(super) fn shorten(builder: &mut Builder<'_>) -> Made<()> {
    drop_unread(builder);
    uniform::hoist(builder)?;
    scopes::open_up(builder)?;
    fuse::fuse(builder)?;
    drop_unread(builder);
    scopes::join(builder)?;
    loads::gather(builder)
}

#[cfg(test)]
mod tests {
    use warpjoin_kernels::interpret::Operation as Do;

    use super::*;
    use crate::interpret::operand::{Next, Operand, Step};
    use crate::program::{Around, Body, Kernel, Nodes};

    /// A loop over rows with these instructions, given the row, whether it is there, and three parameters.
    fn shortened(fill: impl FnOnce(&mut Builder<'_>, Operand, Operand, [Operand; 3])) -> Vec<Do> {
        let (nodes, body) = (Nodes::default(), Body::default());
        let kernel =
            Kernel { params: vec![], nodes, body, around: Around::Nothing, block_threads: 0, blocks_min: None };
        let mut builder = Builder::new(&kernel);
        let fields = [0, 1, 2].map(Operand::Field);
        let begin = builder.open_loop();
        let end = builder.label();
        let (row, alive) = (builder.lanes(1), builder.lanes(1));
        let grid = Step::new(Do::Grid, row, &[fields[0], Operand::NONE, Operand::NONE, alive]);
        builder.push(grid.with(Next::Label(end)));
        fill(&mut builder, row, alive, fields);
        builder.close_loop(begin, end);
        builder.emit(Do::End, Operand::NONE, &[]);
        shorten(&mut builder).unwrap();
        builder.steps.iter().map(|step| step.operation).collect()
    }

    fn load(builder: &mut Builder<'_>, operation: Do, row: Operand, [pointer, base, _]: [Operand; 3]) -> Operand {
        let from = if operation == Do::Load32 { vec![pointer, row] } else { vec![pointer, row, base] };
        builder.word(operation, &from)
    }

    #[test]
    fn what_all_lanes_share_is_computed_once() {
        let steps = shortened(|builder, row, alive, fields| {
            let end = builder.push_scope(Do::Push, alive).unwrap();
            let value = load(builder, Do::LoadAdd16, row, fields);
            let (shift, one) = (builder.constant(0), builder.constant(1));
            let key = builder.word(Do::Subtract, &[value, fields[2]]);
            let key = builder.word(Do::ShiftLeft, &[key, shift]);
            let key = builder.word(Do::Add, &[key, one]);
            builder.emit(Do::Store64, Operand::NONE, &[fields[0], row, key]);
            builder.pop_scope(end);
        });
        let first = [Do::Subtract, Do::KeepUniform, Do::Add, Do::KeepUniform];
        let rows = [Do::Grid, Do::Push, Do::LoadAdd16, Do::Store64, Do::Jump, Do::End];
        assert_eq!(steps, [&first[..], &rows].concat());
    }

    #[test]
    fn tests_are_one_instruction() {
        let steps = shortened(|builder, row, alive, fields| {
            for (operation, to) in [(Do::LessOrEqual, fields[1]), (Do::Less, fields[2])] {
                let end = builder.push_scope(Do::Push, alive).unwrap();
                let value = load(builder, Do::LoadAdd16, row, fields);
                let passes = builder.word(operation, &[value, to]);
                builder.emit(Do::MoveIf, alive, &[passes]);
                builder.pop_scope(end);
                builder.forget();
            }
            builder.emit(Do::Reserve, row, &[fields[0], alive, fields[1], fields[2]]);
        });
        let test = |operation| [Do::LoadAdd16, operation];
        let expected = [
            &[Do::Grid, Do::Push][..],
            &test(Do::NarrowLessOrEqual),
            &test(Do::NarrowLess),
            &[Do::Pop, Do::Reserve, Do::Jump, Do::End],
        ];
        assert_eq!(steps, expected.concat());
    }

    #[test]
    fn scopes_go_on_behind_a_key_that_is_looked_up() {
        let steps = shortened(|builder, row, alive, fields| {
            let end = builder.push_scope(Do::Push, alive).unwrap();
            let key = load(builder, Do::Load32, row, fields);
            builder.pop_scope(end);
            let (found, none) = (builder.lanes(1), builder.constant(0));
            builder.emit(Do::Find4, found, &[alive, key, fields[1], none]);
            builder.forget();
            let end = builder.push_scope(Do::Push, alive).unwrap();
            let (bits, mask) = (builder.constant(5), builder.constant(31));
            let shifted = builder.word(Do::ShiftRightUnsigned, &[found, bits]);
            let part = builder.word(Do::And, &[shifted, mask]);
            let part = builder.word(Do::AddInt, &[fields[2], part]);
            builder.emit(Do::Store32, Operand::NONE, &[fields[0], row, part]);
            builder.pop_scope(end);
        });
        let expected =
            [Do::Grid, Do::Push, Do::Load32, Do::Find4, Do::Narrow, Do::ExtractInt, Do::Store32, Do::Jump, Do::End];
        assert_eq!(steps, expected);
    }

    #[test]
    fn what_others_alone_read_stays() {
        let steps = shortened(|builder, row, alive, fields| {
            let end = builder.push_scope(Do::Push, alive).unwrap();
            let [one, other] = [fields[0], fields[1]].map(|pointer| builder.word(Do::Load32, &[pointer, row]));
            let sum = builder.value(Step::new(Do::AddInt, Operand::NONE, &[fields[2], one]), 1);
            for value in [other, sum] {
                builder.emit(Do::Store32, Operand::NONE, &[fields[0], row, value]);
            }
            builder.pop_scope(end);
        });
        let stores = [Do::AddInt, Do::Store32, Do::Store32, Do::Jump, Do::End];
        assert_eq!(steps, [&[Do::Grid, Do::Push, Do::Loads2, Do::Load32, Do::Load32][..], &stores].concat());
    }

    #[test]
    fn what_others_read_stays() {
        let steps = shortened(|builder, row, alive, fields| {
            let end = builder.push_scope(Do::Push, alive).unwrap();
            let value = load(builder, Do::LoadAdd8, row, fields);
            let less = builder.word(Do::Subtract, &[value, fields[2]]);
            let bits = builder.constant(3);
            let shifted = builder.word(Do::ShiftLeft, &[less, bits]);
            let both = builder.word(Do::Or, &[value, shifted]);
            let both = builder.word(Do::Xor, &[both, shifted]);
            builder.emit(Do::Store64, Operand::NONE, &[fields[0], row, both]);
            builder.pop_scope(end);
        });
        let expected = [
            &[Do::Grid, Do::Push, Do::LoadAdd8, Do::Subtract, Do::ShiftLeft, Do::Or, Do::Xor, Do::Store64][..],
            &[Do::Jump, Do::End],
        ];
        assert_eq!(steps, expected.concat());
    }

    #[test]
    fn loads_of_one_scope_are_made_together() {
        let steps = shortened(|builder, row, alive, fields| {
            let end = builder.push_scope(Do::Push, alive).unwrap();
            let one = load(builder, Do::LoadAdd8, row, fields);
            let sum = builder.word(Do::Multiply, &[one, row]);
            let two = load(builder, Do::LoadAdd16, row, fields);
            let three = load(builder, Do::Load32, row, fields);
            for value in [sum, two, three] {
                builder.emit(Do::Store64, Operand::NONE, &[fields[0], row, value]);
            }
            builder.pop_scope(end);
        });
        let loads = [Do::Loads4, Do::LoadAdd8, Do::LoadAdd16, Do::Load32, Do::Load32];
        let rest = [Do::Multiply, Do::Store64, Do::Store64, Do::Store64, Do::Jump, Do::End];
        assert_eq!(steps, [&[Do::Grid, Do::Push][..], &loads, &rest].concat());
    }

    #[test]
    fn loads_wait_for_what_they_need() {
        let steps = shortened(|builder, row, alive, fields| {
            let end = builder.push_scope(Do::Push, alive).unwrap();
            let place = builder.word(Do::Load32, &[fields[0], row]);
            let there = builder.word(Do::Load32, &[fields[1], place]);
            builder.emit(Do::Store32, Operand::NONE, &[fields[2], row, there]);
            let few = builder.word(Do::Less, &[there, fields[0]]);
            builder.emit(Do::MoveIf, alive, &[few]);
            builder.pop_scope(end);
            builder.forget();
            let end = builder.push_scope(Do::Push, alive).unwrap();
            // Only rows that are left load this one.
            let last = builder.word(Do::Load32, &[fields[0], row]);
            builder.emit(Do::Store32, Operand::NONE, &[fields[2], row, last]);
            builder.pop_scope(end);
        });
        let first = [Do::Grid, Do::Push, Do::Load32, Do::Load32, Do::Store32, Do::NarrowLess];
        assert_eq!(steps, [&first[..], &[Do::Load32, Do::Store32, Do::Jump, Do::End]].concat());
    }
}
