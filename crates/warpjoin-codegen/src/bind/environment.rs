//! The columns that a step sees, and what is known of how to get at them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use warpjoin_columns::column::ColumnType;
use warpjoin_columns::expr::Expr;
use warpjoin_columns::{Error, Result};

use super::value::Value;
use crate::program::Code;
use crate::shapes::FetchStep;

/// The columns that a step sees, computed when first asked for.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    cells: Rc<RefCell<Vec<Cell>>>,
}

/// One column of an environment.
#[derive(Debug, Clone)]
pub(crate) enum Cell {
    /// A variable.
    Ready(Value),
    /// Code that is worth a variable once it is used.
    Load(Value),
    /// Column of the source table.
    Source(usize),
    /// Column `column` of the payload of probe step `join`.
    Payload { join: usize, column: usize },
    /// A column that was said to be needed by nobody.
    Absent,
    /// An expression over an earlier environment.
    Computed(Expr, Environment),
    /// Column `column` of what a step fetches by row numbers of its input.
    Fetched { step: Arc<FetchStep>, column: usize, input: Environment },
}

impl Environment {
    pub(crate) fn new(cells: Vec<Cell>) -> Self {
        Self { cells: Rc::new(RefCell::new(cells)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.borrow().len()
    }

    /// The cells at these positions, shared with this environment's later knowledge only by value.
    pub(crate) fn cell(&self, index: usize) -> Result<Cell> {
        let cells = self.cells.borrow();
        cells.get(index).cloned().ok_or_else(|| Error::internal(format!("column {index} of {}", cells.len())))
    }

    /// These columns, and one more behind them.
    pub(crate) fn with(&self, cell: Option<Cell>) -> Self {
        Self::new(self.cells.borrow().iter().cloned().chain(cell).collect())
    }

    /// Says which variables hold a column.
    pub(crate) fn set(&self, index: usize, value: Value) {
        self.cells.borrow_mut()[index] = Cell::Ready(value);
    }

    /// The same columns, apart from this environment: what is loaded for some rows only is not known here.
    pub(crate) fn apart(&self) -> Self {
        self.apart_with(&mut HashMap::new())
    }

    fn apart_with(&self, copies: &mut HashMap<*const RefCell<Vec<Cell>>, Environment>) -> Self {
        if let Some(copy) = copies.get(&Rc::as_ptr(&self.cells)) {
            return copy.clone();
        }
        let cells = self.cells.borrow().iter().cloned().collect::<Vec<_>>();
        let cells = cells.into_iter().map(|cell| match cell {
            Cell::Computed(expr, inner) => Cell::Computed(expr, inner.apart_with(copies)),
            Cell::Fetched { step, column, input } => Cell::Fetched { step, column, input: input.apart_with(copies) },
            other => other,
        });
        let copy = Self::new(cells.collect());
        copies.insert(Rc::as_ptr(&self.cells), copy.clone());
        copy
    }

    /// Says that a column is worth this code, too.
    pub(crate) fn set_load(&self, index: usize, value: Value) {
        self.cells.borrow_mut()[index] = Cell::Load(value);
    }
}

/// What must be known of a probe step to load its payload.
#[derive(Debug, Clone)]
pub(crate) enum PayloadAccess {
    /// Values unpacked from a word variable.
    Unpacked(Vec<Value>),
    /// Columns of build rows, by the row number in a variable.
    Columns { row: Code, columns: Vec<ColumnType> },
}

/// The payload of a probe step.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub access: PayloadAccess,
    /// Variable that says whether there is a match; without one the payload is null. `None`: there is one.
    pub matched: Option<Code>,
}
