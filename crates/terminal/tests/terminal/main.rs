//! Streams of real programs and made-up ones, through every part of the crate.

mod chunking;
mod programs;
mod support;
