//! `[log]`: what is written down about the work of a process.

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// From which importance on there are log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// None at all.
    Off,
    /// What could not be done.
    Error,
    /// Also what somebody should look at.
    Warn,
    /// Also what happened.
    Info,
    /// Also what is asked all the time.
    Debug,
}

/// `[log]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// How lines look.
    pub(crate) format: LogFormat,
    /// Which there are.
    pub(crate) level: LogLevel,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: LogLevel::Info }
    }
}

pub(super) fn format(word: &str) -> Result<LogFormat, String> {
    match word {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("it must be one of text, json".to_owned()),
    }
}

pub(super) fn level(word: &str) -> Result<LogLevel, String> {
    match word {
        "off" => Ok(LogLevel::Off),
        "error" => Ok(LogLevel::Error),
        "warn" => Ok(LogLevel::Warn),
        "info" => Ok(LogLevel::Info),
        "debug" => Ok(LogLevel::Debug),
        _ => Err("it must be one of off, error, warn, info, debug".to_owned()),
    }
}
