//! Constants that kernels and host share: declared once, and defined in C as well.

/// Declares constants, and what defines them in C: under the same names behind a prefix.
macro_rules! constants {
    ($prefix:literal: $($(#[$meta:meta])* pub const $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$meta])* pub const $name: $type = $value;)*

        /// The constants in C.
        pub(crate) fn defines() -> String {
            [$($crate::constants::define(concat!($prefix, stringify!($name)), $name as u64)),*].concat()
        }
    };
}
pub(crate) use constants;

/// An `int` where it fits, as C's own literals are.
pub(crate) fn define(name: &str, value: u64) -> String {
    match i32::try_from(value) {
        Ok(value) => format!("#define {name} {value}\n"),
        Err(_) => format!("#define {name} {value:#x}ULL\n"),
    }
}
