//! A TOML text, read key by key, with the line of everything.
//!
//! Invariant: whoever asks for a table says which keys it may have; any other key is an error that names the
//! nearest known one. Not here: what the keys mean.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Number, Value};
use toml::de::{DeTable, DeValue};

use super::ConfigError;
use super::nearest::nearest;

/// A whole file.
pub(super) struct Document<'a> {
    file: PathBuf,
    text: &'a str,
    table: DeTable<'a>,
}

/// One table of it.
pub(super) struct Section<'a> {
    document: &'a Document<'a>,
    /// How it is called in the file, such as `agents.default`; empty for the top.
    path: String,
    at: Range<usize>,
    table: &'a DeTable<'a>,
}

impl<'a> Document<'a> {
    pub(super) fn parse(file: &Path, text: &'a str) -> Result<Self, ConfigError> {
        match DeTable::parse(text) {
            Ok(table) => Ok(Self { file: file.to_owned(), text, table: table.into_inner() }),
            Err(error) => Err(ConfigError::Wrong {
                file: file.to_owned(),
                line: line_in(text, error.span().map_or(0, |span| span.start)),
                problem: format!("this is not valid TOML: {}", error.message().replace('\n', ", ")),
            }),
        }
    }

    /// The top of the file.
    pub(super) fn top(&'a self, known: &[&str]) -> Result<Section<'a>, ConfigError> {
        Section { document: self, path: String::new(), at: 0..0, table: &self.table }.checked(known)
    }

    fn wrong(&self, at: usize, problem: String) -> ConfigError {
        self.wrong_line(line_in(self.text, at), problem)
    }

    /// An error about a line.
    pub(super) fn wrong_line(&self, line: usize, problem: String) -> ConfigError {
        ConfigError::Wrong { file: self.file.clone(), line, problem }
    }
}

fn line_in(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

impl<'a> Section<'a> {
    fn checked(self, known: &[&str]) -> Result<Self, ConfigError> {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let hint = match nearest(name, known) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("known here are {}", known.join(", ")),
            };
            let full = self.full(name);
            return Err(self
                .document
                .wrong(key.span().start, format!("the key {} is unknown; {hint}", shown(&full))));
        }
        Ok(self)
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The line where the table begins.
    pub(super) fn line(&self) -> usize {
        line_in(self.document.text, self.at.start)
    }

    /// The line of a key's value; without the key, that of the table.
    pub(super) fn line_of(&self, key: &str) -> usize {
        self.table
            .get(key)
            .map_or_else(|| self.line(), |value| line_in(self.document.text, value.span().start))
    }

    /// An error about the whole table.
    pub(super) fn wrong(&self, problem: &str) -> ConfigError {
        self.document.wrong(self.at.start, format!("{}: {problem}", shown(&self.path)))
    }

    /// An error about one of its keys.
    pub(super) fn wrong_at(&self, key: &str, problem: &str) -> ConfigError {
        let at = self.table.get(key).map_or(self.at.start, |value| value.span().start);
        self.document.wrong(at, format!("{}: {problem}", shown(&self.full(key))))
    }

    fn wanted(&self, key: &str, wanted: &str, found: &DeValue<'_>) -> ConfigError {
        self.wrong_at(key, &format!("it must be {wanted}, not {}", kind_of(found)))
    }

    /// A text.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        match self.table.get(key).map(toml::Spanned::get_ref) {
            None => Ok(None),
            Some(value) => {
                value.as_str().map(Some).ok_or_else(|| self.wanted(key, "a text in quotes", value))
            }
        }
    }

    /// A text that is parsed into something else.
    pub(super) fn parsed<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let text = self.text(key)?;
        text.map(|text| parse(text).map_err(|problem| self.wrong_at(key, &problem))).transpose()
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        match self.table.get(key).map(toml::Spanned::get_ref) {
            None => Ok(None),
            Some(value) => value.as_bool().map(Some).ok_or_else(|| self.wanted(key, "true or false", value)),
        }
    }

    /// A whole number within bounds.
    pub(super) fn number<T>(&self, key: &str, min: T, max: T) -> Result<Option<T>, ConfigError>
    where
        T: TryFrom<u64> + PartialOrd + std::fmt::Display + Copy,
    {
        let Some(value) = self.table.get(key).map(toml::Spanned::get_ref) else { return Ok(None) };
        let Some(number) = value.as_integer() else { return Err(self.wanted(key, "a whole number", value)) };
        let number = u64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .and_then(|number| T::try_from(number).ok());
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong_at(key, &format!("it must be from {min} to {max}"))),
        }
    }

    /// A list of texts, each parsed.
    pub(super) fn list<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Vec<T>>, ConfigError> {
        let Some(value) = self.table.get(key).map(toml::Spanned::get_ref) else { return Ok(None) };
        let Some(items) = value.as_array() else { return Err(self.wanted(key, "a list of texts", value)) };
        let parsed = items.iter().map(|item| {
            let wrong = |problem: &str| {
                self.document.wrong(item.span().start, format!("{}: {problem}", shown(&self.full(key))))
            };
            let text = item.get_ref().as_str().ok_or_else(|| wrong("every item must be a text in quotes"))?;
            parse(text).map_err(|problem| wrong(&problem))
        });
        parsed.collect::<Result<_, _>>().map(Some)
    }

    /// A table of any shape, as the JSON that it becomes.
    pub(super) fn json(&self, key: &str) -> Result<Option<Value>, ConfigError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        if value.get_ref().as_table().is_none() {
            return Err(self.wanted(key, "a table", value.get_ref()));
        }
        json(value.get_ref()).map(Some).map_err(|problem| self.wrong_at(key, &problem))
    }

    /// All tables of the list `key`, in order. Errors call each by its `name`, where it has one.
    pub(super) fn tables<T>(
        &self,
        key: &str,
        known: &[&str],
        read: impl Fn(&Section<'a>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let wanted =
            || self.wrong_at(key, &format!("it must be a list of tables, each begun with [[{key}]]"));
        let items = value.get_ref().as_array().ok_or_else(wanted)?;
        let sections = items.iter().map(|item| {
            let table = item.get_ref().as_table().ok_or_else(wanted)?;
            let name = table.get("name").and_then(|name| name.get_ref().as_str());
            let path = name.map_or_else(|| self.full(key), |name| format!("{}.{name}", self.full(key)));
            let section = Section { document: self.document, path, at: item.span(), table };
            read(&section.checked(known)?)
        });
        sections.collect()
    }

    /// A table in this one.
    pub(super) fn section(&self, key: &str, known: &[&str]) -> Result<Option<Section<'a>>, ConfigError> {
        let Some((name, value)) = self.table.get_key_value(key) else { return Ok(None) };
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.wanted(key, "a table", value.get_ref()));
        };
        // A table written over several headers has no span of its own; its name has one.
        let section = Section { document: self.document, path: self.full(key), at: name.span(), table };
        section.checked(known).map(Some)
    }

    /// All tables in the table `key`, by name.
    pub(super) fn named<T>(
        &self,
        key: &str,
        known: &[&str],
        read: impl Fn(&str, &Section<'a>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let Some(value) = self.table.get(key) else { return Ok(Vec::new()) };
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.wanted(key, "a table", value.get_ref()));
        };
        let all = Section { document: self.document, path: self.full(key), at: value.span(), table };
        let names = table.keys().map(|name| name.get_ref().as_ref());
        names
            .filter_map(|name| Some((name, all.section(name, known).transpose()?)))
            .map(|(name, section)| read(name, &section?))
            .collect()
    }
}

/// A key as it may stand in a message.
fn shown(key: &str) -> String {
    crate::escape::short(key, 120)
}

/// TOML as JSON. A time and a number that is none have no form in JSON.
fn json(value: &DeValue<'_>) -> Result<Value, String> {
    let unfit = |what: &str| Err(format!("it must be plain JSON, which has no {what}"));
    Ok(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(flag) => Value::from(*flag),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::from(number),
            Err(_) => return unfit("whole number of this size"),
        },
        DeValue::Float(number) => match number.as_str().parse::<f64>().ok().and_then(Number::from_f64) {
            Some(number) => Value::Number(number),
            None => return unfit("such number"),
        },
        DeValue::Datetime(_) => return unfit("time"),
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|item| json(item.get_ref())).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => {
            let members = table
                .iter()
                .map(|(key, value)| Ok((key.get_ref().as_ref().to_owned(), json(value.get_ref())?)));
            Value::Object(members.collect::<Result<_, String>>()?)
        }
    })
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
