//! The loop, a person's word and the power cord: the driver over the store in memory, with scripted models
//! and recording tools.
//!
//! Every request that any of these tests makes to a model is checked for being valid for that model
//! (`kit::witness`), and what the tools themselves wrote down is the judge of what ran.

#![cfg(test)]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind among many")]

mod kit;

mod arguments;
mod cancelling;
mod continuing;
mod decisions;
mod edits;
mod failures;
mod gates;
mod inputs;
mod limits;
mod r#loop;
mod meanwhile;
mod models;
mod poison;
mod power;
mod previews;
mod races;
mod settling;
mod starting;
mod unattended;
mod watching;
mod window;
mod working_time;
