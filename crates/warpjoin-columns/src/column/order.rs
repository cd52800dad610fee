//! Whether a column is sorted, found out while it streams by.

/// What is known of the order of the rows so far. Rows must be offered in order.
#[derive(Debug, Clone)]
pub(crate) struct Order<T> {
    first: Option<T>,
    last: Option<T>,
    /// No row was smaller than the one before it.
    pub sorted: bool,
    /// Every row was larger than the one before it.
    pub(crate) strict: bool,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { first: None, last: None, sorted: true, strict: true }
    }
}

/// Values whose order matters. For floats neither relation holds for a NaN, and -0.0 is not in
/// order with 0.0, so that "sorted" is true under every comparison that queries use.
pub(crate) trait Ordered: Copy {
    fn precedes(self, next: Self) -> bool;
    fn same(self, next: Self) -> bool;
}

macro_rules! ordered {
    ($($int:ty),*) => {$(
        impl Ordered for $int {
            fn precedes(self, next: Self) -> bool {
                self < next
            }
            fn same(self, next: Self) -> bool {
                self == next
            }
        }
    )*};
}
ordered!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

macro_rules! ordered_float {
    ($($float:ty),*) => {$(
        impl Ordered for $float {
            fn precedes(self, next: Self) -> bool {
                self < next
            }
            fn same(self, next: Self) -> bool {
                self == next && self.to_bits() == next.to_bits()
            }
        }
    )*};
}
ordered_float!(f32, f64);

impl<T: Copy> Order<T> {
    /// The first and the last row, if there are rows and all are in order.
    pub(crate) fn ends(&self) -> Option<(T, T)> {
        self.first.zip(self.last).filter(|_| self.sorted)
    }
}

impl<T> Order<T> {
    /// A null came: it has no place in the order.
    pub(crate) fn break_off(&mut self) {
        self.sorted = false;
        self.strict = false;
    }
}

impl<T: Copy + PartialEq> Order<T> {
    /// Takes the next rows, none of them null, where looking at values is dear: stops at the first
    /// pair that is not in order. Unequal values are put in order by `precedes`.
    pub(crate) fn offer_with(&mut self, values: &[T], precedes: impl Fn(T, T) -> bool) {
        for &value in values {
            if !self.sorted {
                return;
            }
            self.first.get_or_insert(value);
            if let Some(previous) = self.last.replace(value) {
                let same = previous == value;
                self.sorted = same || precedes(previous, value);
                self.strict &= self.sorted && !same;
            }
        }
    }
}

impl<T: Ordered> Order<T> {
    /// Takes the rows that `later` took.
    pub(crate) fn append(&mut self, later: &Self) {
        self.sorted &= later.sorted;
        self.strict &= later.strict;
        if let (Some(last), Some(first)) = (self.last, later.first) {
            self.sorted &= last.precedes(first) || last.same(first);
            self.strict &= last.precedes(first);
        }
        self.first = self.first.or(later.first);
        self.last = later.last.or(self.last);
    }

    /// Takes the next rows, none of them null.
    pub(crate) fn offer(&mut self, values: &[T]) {
        let (Some(&first), Some(&last)) = (values.first(), values.last()) else { return };
        if !self.sorted {
            return;
        }
        self.first.get_or_insert(first);
        if let Some(previous) = self.last.replace(last) {
            self.strict &= previous.precedes(first);
            self.sorted &= previous.precedes(first) || previous.same(first);
        }
        const BLOCK_ROWS: usize = 1024;
        let mut start = 0;
        while self.sorted && start + 1 < values.len() {
            let end = (start + BLOCK_ROWS).min(values.len() - 1);
            let pairs = || values[start..end].iter().zip(&values[start + 1..=end]);
            self.strict &= pairs().fold(true, |all, (a, b)| all & a.precedes(*b));
            self.sorted = self.strict || pairs().fold(true, |all, (a, b)| all & (a.precedes(*b) | a.same(*b)));
            start = end;
        }
        self.strict &= self.sorted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order<T: Ordered>(values: &[T], split: usize) -> (bool, bool) {
        let (before, behind) = values.split_at(split);
        let (mut all, mut first, mut second) = (Order::default(), Order::default(), Order::default());
        all.offer(before);
        all.offer(behind);
        first.offer(before);
        second.offer(behind);
        first.append(&second);
        assert_eq!((first.sorted, first.strict), (all.sorted, all.strict), "in two runs");
        (all.sorted, all.strict)
    }

    #[test]
    fn breaks_are_found_wherever_they_are() {
        let rising: Vec<i32> = (0..3000).collect();
        for split in [0, 1, 1024, 1025, 2999, 3000] {
            assert_eq!(order(&rising, split), (true, true));
            for at in [1, 1023, 1024, 1025, 2999] {
                let mut equal = rising.clone();
                equal[at] = equal[at - 1];
                assert_eq!(order(&equal, split), (true, false), "{at} {split}");
                equal[at] -= 1;
                assert_eq!(order(&equal, split), (false, false), "{at} {split}");
            }
        }
    }

    #[test]
    fn odd_floats_are_not_in_order() {
        assert_eq!(order(&[1.0, f64::NAN], 0), (false, false));
        assert_eq!(order(&[-0.0, 0.0], 1), (false, false));
        assert_eq!(order(&[0.5f32, 0.5, 0.75], 1), (true, false));
    }
}
