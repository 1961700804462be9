//! The program from outside: the real binary, real files, a scripted server of models, a real terminal.
//!
//! Every test has a folder of its own and shares nothing with another. Nothing waits by the clock: what is
//! waited for is looked at until it is there, a bounded number of times.

mod support;

mod commands;
mod failures;
mod resume;
mod safety;
mod terminal;
mod tour;
