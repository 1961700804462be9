//! A model's name says what the model does, so that it needs no state: what comes next follows from how many
//! tool results a request has.
//!
//! - `loop-10`: ten turns that each call `lookup`, then a text
//! - `write-1`: a turn that calls `write_record`, then a text
//! - `loop-10w1`: ten turns of the first, one of the second, then a text
//! - `loop-10-l20`: every answer comes 20 ms late

use std::str::FromStr;
use std::time::Duration;

/// What a model of some name does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    lookups: u32,
    writes: u32,
    /// How long it thinks before each answer.
    pub latency: Duration,
}

/// What it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A call of `lookup` with this id.
    Lookup(u32),
    /// A call of `write_record` with this id.
    Write(u32),
    /// The text at the end.
    Text,
}

/// The name of no script.
#[derive(Debug)]
pub struct NotAScript;

impl FromStr for Script {
    type Err = NotAScript;

    fn from_str(name: &str) -> Result<Self, NotAScript> {
        let number = |text: &str| text.parse::<u32>().map_err(|_| NotAScript);
        let (name, latency) = name.split_once("-l").map_or((name, None), |(name, ms)| (name, Some(ms)));
        let latency = Duration::from_millis(latency.map_or(Ok(0), number)?.into());
        let (lookups, writes) = match name.split_once('-').ok_or(NotAScript)? {
            ("write", writes) => (0, number(writes)?),
            ("loop", turns) => match turns.split_once('w') {
                Some((lookups, writes)) => (number(lookups)?, number(writes)?),
                None => (number(turns)?, 0),
            },
            _ => return Err(NotAScript),
        };
        Ok(Self { lookups, writes, latency })
    }
}

impl Script {
    /// What comes after so many tool results.
    pub fn after(&self, results: u32) -> Turn {
        if results < self.lookups {
            Turn::Lookup(results)
        } else if results < self.lookups + self.writes {
            Turn::Write(results - self.lookups)
        } else {
            Turn::Text
        }
    }
}
