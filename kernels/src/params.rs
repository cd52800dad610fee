//! Parameters of kernels: structs of 8-byte fields, each declared once for C and Rust.
//!
//! Owns what a field may be, how it is written in C, and what a launch passes for it. Must not know what device memory is:
//! `B` is the type of its buffers.

use std::marker::PhantomData;

/// What a launch passes for one 8-byte field.
#[derive(Debug)]
pub enum Arg<'a, B> {
    /// A number, or the bits of one.
    U64(u64),
    /// The address of a buffer.
    Buffer(&'a B),
    /// The address of a byte within a buffer.
    BufferAt(&'a B, u64),
    /// A null pointer.
    Null,
}

impl<B> Clone for Arg<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Arg<'_, B> {}

impl<'a, B> Arg<'a, B> {
    /// The address of a buffer, or null.
    pub fn or_null(buffer: Option<&'a B>) -> Self {
        buffer.map_or(Self::Null, Self::Buffer)
    }
}

/// All parameters of a launch.
pub trait KernelParams<B: 'static> {
    /// Names of the kernels that take them; none: the kernel is generated, and so is its struct.
    const ENTRIES: &'static [&'static str];

    /// Calls `pass` with each field, in order.
    fn pass<'s>(&'s self, pass: &mut impl FnMut(Arg<'s, B>));
}

/// The parameters of a generated kernel.
impl<B: 'static> KernelParams<B> for [Arg<'_, B>] {
    const ENTRIES: &'static [&'static str] = &[];

    fn pass<'s>(&'s self, pass: &mut impl FnMut(Arg<'s, B>)) {
        self.iter().for_each(|arg| pass(*arg));
    }
}

impl<B: 'static, const N: usize> KernelParams<B> for [Arg<'_, B>; N] {
    const ENTRIES: &'static [&'static str] = &[];

    fn pass<'s>(&'s self, pass: &mut impl FnMut(Arg<'s, B>)) {
        self[..].pass(pass);
    }
}

/// A field of a parameter struct: a number, a pointer, an array of fields, or a struct.
pub trait Field<B: 'static> {
    /// 8-byte words of it.
    const WORDS: usize;

    /// Declares a field of that name in C.
    fn declaration(name: &str) -> String;

    /// Calls `pass` with each 8 bytes of the field, in order.
    fn pass<'s>(&'s self, pass: &mut impl FnMut(Arg<'s, B>));
}

/// An address in device memory, of which kernels know the type: `Ptr<'a, B, *const u32>`.
#[derive(Debug)]
pub struct Ptr<'a, B, T> {
    buffer: &'a B,
    offset_bytes: u64,
    kind: PhantomData<fn() -> T>,
}

impl<B, T> Clone for Ptr<'_, B, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B, T> Copy for Ptr<'_, B, T> {}

impl<'a, B, T: Pointer> Ptr<'a, B, T> {
    /// The first value of a buffer.
    pub fn of(buffer: &'a B) -> Self {
        Self { buffer, offset_bytes: 0, kind: PhantomData }
    }

    /// A value of a buffer that is not the first one.
    pub fn at(buffer: &'a B, index: u64) -> Self {
        Self::at_byte(buffer, index * T::VALUE_BYTES)
    }

    /// The value that begins at a byte of a buffer, which holds others too.
    pub fn at_byte(buffer: &'a B, offset_bytes: u64) -> Self {
        Self { buffer, offset_bytes, kind: PhantomData }
    }
}

impl<'a, B> Ptr<'a, B, *mut u8> {
    /// The same address, for kernels that only read there.
    pub fn to_const(self) -> Ptr<'a, B, *const u8> {
        Ptr { buffer: self.buffer, offset_bytes: self.offset_bytes, kind: PhantomData }
    }
}

/// Types of C's pointers.
pub trait Pointer {
    /// Its name in C.
    const NAME: &'static str;
    /// Bytes from one value to the next.
    const VALUE_BYTES: u64;
}

macro_rules! pointers {
    ($($value:ty: $name:literal),* $(,)?) => {
        $(
            impl $crate::params::Pointer for *const $value {
                const NAME: &'static str = concat!("const ", $name, "*");
                const VALUE_BYTES: u64 = size_of::<$value>() as u64;
            }
            impl $crate::params::Pointer for *mut $value {
                const NAME: &'static str = concat!($name, "*");
                const VALUE_BYTES: u64 = size_of::<$value>() as u64;
            }
        )*
    };
}

pointers! { u8: "u8", u16: "u16", u32: "u32", u64: "u64" }
pub(crate) use pointers;

impl<B: 'static, T: Pointer> Field<B> for Ptr<'_, B, T> {
    const WORDS: usize = 1;

    fn declaration(name: &str) -> String {
        format!("{} {name}", T::NAME)
    }

    fn pass<'s>(&'s self, pass: &mut impl FnMut(Arg<'s, B>)) {
        pass(Arg::BufferAt(self.buffer, self.offset_bytes));
    }
}

/// All words are 0 where there is none.
impl<B: 'static, F: Field<B>> Field<B> for Option<F> {
    const WORDS: usize = F::WORDS;

    fn declaration(name: &str) -> String {
        F::declaration(name)
    }

    fn pass<'s>(&'s self, pass: &mut impl FnMut(Arg<'s, B>)) {
        match self {
            Some(field) => field.pass(pass),
            None => (0..F::WORDS).for_each(|_| pass(Arg::Null)),
        }
    }
}

impl<B: 'static> Field<B> for u64 {
    const WORDS: usize = 1;

    fn declaration(name: &str) -> String {
        format!("u64 {name}")
    }

    fn pass<'s>(&'s self, pass: &mut impl FnMut(Arg<'s, B>)) {
        pass(Arg::U64(*self));
    }
}

impl<B: 'static> Field<B> for i64 {
    const WORDS: usize = 1;

    fn declaration(name: &str) -> String {
        format!("i64 {name}")
    }

    fn pass<'s>(&'s self, pass: &mut impl FnMut(Arg<'s, B>)) {
        pass(Arg::U64(*self as u64));
    }
}

/// What one launch passes and another does not.
impl<B: 'static> Field<B> for Arg<'_, B> {
    const WORDS: usize = 1;

    fn declaration(name: &str) -> String {
        format!("u64 {name}")
    }

    fn pass<'s>(&'s self, pass: &mut impl FnMut(Arg<'s, B>)) {
        pass(*self);
    }
}

/// A whole word in C, 0 or 1.
impl<B: 'static> Field<B> for bool {
    const WORDS: usize = 1;

    fn declaration(name: &str) -> String {
        format!("u64 {name}")
    }

    fn pass<'s>(&'s self, pass: &mut impl FnMut(Arg<'s, B>)) {
        pass(Arg::U64((*self).into()));
    }
}

impl<B: 'static, F: Field<B>, const N: usize> Field<B> for [F; N] {
    const WORDS: usize = N * F::WORDS;

    fn declaration(name: &str) -> String {
        F::declaration(&format!("{name}[{N}]"))
    }

    fn pass<'s>(&'s self, pass: &mut impl FnMut(Arg<'s, B>)) {
        self.iter().for_each(|field| field.pass(pass));
    }
}

/// An array of the values that there are, and of `rest` behind them.
pub fn padded<T: Copy, const N: usize>(values: impl IntoIterator<Item = T>, rest: T) -> [T; N] {
    let mut values = values.into_iter();
    let array = std::array::from_fn(|_| values.next().unwrap_or(rest));
    debug_assert!(values.next().is_none(), "more than {N} values");
    array
}

/// Declares parameter structs, and what declares them in C. `for` names the kernels that take a struct; others are fields.
macro_rules! params {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident<$a:lifetime, $b:ident> $(for [$($entry:literal),* $(,)?])? {
            $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
        }
    )*) => {
        $(
            $(#[$meta])*
            #[derive(Debug)]
            pub struct $name<$a, $b> {
                $($(#[$field_meta])* pub $field: $type,)*
            }

            impl<B> Clone for $name<'_, B> {
                fn clone(&self) -> Self {
                    *self
                }
            }

            impl<B> Copy for $name<'_, B> {}

            impl<$a, $b: 'static> $crate::params::Field<$b> for $name<$a, $b> {
                const WORDS: usize = 0 $(+ <$type as $crate::params::Field<$b>>::WORDS)*;

                fn declaration(name: &str) -> String {
                    format!("{} {name}", stringify!($name))
                }

                fn pass<'s>(&'s self, pass: &mut impl FnMut($crate::params::Arg<'s, $b>)) {
                    $($crate::params::Field::pass(&self.$field, pass);)*
                }
            }

            impl<$a, $b: 'static> $name<$a, $b> {
                fn definition() -> String {
                    let fields = [$(<$type as $crate::params::Field<$b>>::declaration(stringify!($field))),*];
                    format!("struct {} {{\n    {};\n}};\n", stringify!($name), fields.join(";\n    "))
                }
            }

            $(
                impl $name<'_, ()> {
                    /// Names of the kernels that take it.
                    pub const ENTRIES: &'static [&'static str] = &[$($entry),*];
                }

                impl<$a, $b: 'static> $crate::params::KernelParams<$b> for $name<$a, $b> {
                    const ENTRIES: &'static [&'static str] = $name::<'_, ()>::ENTRIES;

                    fn pass<'s>(&'s self, pass: &mut impl FnMut($crate::params::Arg<'s, $b>)) {
                        $crate::params::Field::pass(self, pass);
                    }
                }
            )?
        )*

        /// The structs in C.
        pub(crate) fn structs() -> String {
            [$($name::<'_, ()>::definition()),*].concat()
        }

        /// Kernels, and the structs that they take.
        #[cfg(test)]
        pub(crate) const KERNELS: &[(&str, &[&str])] = &[$($((stringify!($name), &[$($entry),*]),)?)*];
    };
}
pub(crate) use params;
