//! The program from outside: the real binary, real files, a scripted server of models, a real terminal.
//!
//! Every test has a folder of its own and shares nothing with another. Nothing waits by the clock: what is
//! waited for is looked at until it is there, a bounded number of times.

#[cfg(test)]
mod support;

#[cfg(test)]
mod api;
#[cfg(test)]
mod approvals;
#[cfg(test)]
mod care;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod conversations;
#[cfg(test)]
mod databases;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod details;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod people;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod resume;
#[cfg(test)]
mod safety;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod service;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod skills;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod tour;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod webhooks;
#[cfg(test)]
mod work;
