//! The rules of the core, tried from outside. A test's name says the rule, the case or the vector it tries.
//!
//! One binary, so that all tests share the small world of `world`.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test asks for the variant it means; any other fails it"
)]

#[cfg(test)]
mod approval;
#[cfg(test)]
mod arguments;
#[cfg(test)]
mod auditor;
#[cfg(test)]
mod availability;
#[cfg(test)]
mod decision;
#[cfg(test)]
mod decision_order;
#[cfg(test)]
mod events;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod pending;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod races;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod reference_gate;
#[cfg(test)]
mod turn;
#[cfg(test)]
mod walk;
#[cfg(test)]
mod window;
#[cfg(test)]
mod words;
#[cfg(test)]
mod working_time;
#[cfg(test)]
mod world;
