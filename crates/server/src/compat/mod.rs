//! APIs of other programs, for clients that were written for those: each parses, asks the engine and answers in the
//! words of the other.

pub(crate) mod slots;
