//! What a layer worker does.
#![forbid(unsafe_code)]
