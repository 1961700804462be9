//! Skills: folders with a `SKILL.md`, whose front matter may restrict tools and whose text goes into the system
//! prompt (G6).
//!
//! Invariant: a skill only restricts. One that is missing, or whose front matter cannot be read with certainty, has
//! the opinion of nothing; so does one whose `allowed-tools` has no value. What is not plain YAML (an alias, a tag,
//! a merge, deep nesting, a key twice, a key that is no text) is not read with certainty. Not here: what opinions come to (`countersign-core`).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use countersign::SkillInForce;
use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::{Yaml, YamlLoader};

use crate::config::Config;

/// The file in a skill's folder.
const FILE: &str = "SKILL.md";
/// The bytes that the texts of all skills of an agent may have in the system prompt (G6).
pub(crate) const PROSE_BYTES_MAX: usize = 16_000;
/// A file larger than this is none that a person wrote for a model.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// No front matter is nested deeper.
const DEPTH_MAX: usize = 16;
const ALLOWED_TOOLS: &str = "allowed-tools";

/// One skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skill {
    /// What its front matter calls it, if it does.
    pub(crate) calls_itself: Option<String>,
    /// What it says about tools; `None`: nothing.
    pub(crate) allowed_tools: Option<Vec<String>>,
    /// Its text.
    pub(crate) prose: String,
}

/// Why a skill cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SkillError {
    /// No folder of this name.
    #[error("there is no {FILE} in a folder {0} below the paths of [skills]")]
    Missing(String),
    /// The file cannot be read.
    #[error("{} cannot be read: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its front matter is not what it must be.
    #[error("{}: {problem}", file.display())]
    Wrong {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// What an agent's skills come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InForce {
    /// What they say about tools.
    pub(crate) skills: Vec<SkillInForce>,
    /// Their texts, for the end of the system prompt.
    pub(crate) prose: String,
}

/// Reads the skill of this name, from the first of the paths that has it.
///
/// # Errors
/// [`SkillError`].
pub(crate) fn read(config: &Config, name: &str) -> Result<Skill, SkillError> {
    let mut files = config.skill_paths.iter().map(|path| path.join(name).join(FILE));
    let file = files.find(|file| file.symlink_metadata().is_ok());
    let file = file.ok_or_else(|| SkillError::Missing(name.to_owned()))?;
    let text = text(&file).map_err(|source| SkillError::File { file: file.clone(), source })?;
    parse(&text).map_err(|problem| SkillError::Wrong { file, problem })
}

/// Where the skills of the agents really lie, which may be behind a link and outside of `skills.paths`. What is not
/// there is not among them: no run starts with it.
pub(crate) fn real_places(config: &Config) -> Vec<PathBuf> {
    let names: BTreeSet<&String> = config.agents.iter().flat_map(|agent| &agent.skills.0).collect();
    let folders = config.skill_paths.iter().flat_map(|path| names.iter().map(move |name| path.join(name)));
    let places = folders.flat_map(|folder| [folder.join(FILE), folder]);
    places.filter_map(|place| place.canonicalize().ok()).collect()
}

/// The skills of an agent as they restrict it now. One that cannot be read allows nothing.
pub(crate) fn in_force(config: &Config, names: &[String]) -> InForce {
    let skills: Vec<(&String, Option<Skill>)> =
        names.iter().map(|name| (name, read(config, name).ok())).collect();
    let sizes: Vec<usize> =
        skills.iter().map(|(_, skill)| skill.as_ref().map_or(0, |skill| skill.prose.len())).collect();
    let fitting = fitting(&sizes);
    let mut in_force = InForce::default();
    for (index, (name, skill)) in skills.into_iter().enumerate() {
        let (allowed_tools, prose) = match skill {
            Some(skill) => (skill.allowed_tools, skill.prose),
            None => (Some(Vec::new()), String::new()),
        };
        let prose_left_out = index >= fitting && !prose.is_empty();
        if !prose_left_out && !prose.is_empty() {
            in_force.prose.push_str(&format!("\n\n# Skill: {name}\n\n{prose}"));
        }
        in_force.skills.push(SkillInForce { name: name.clone(), allowed_tools, prose_left_out });
    }
    in_force
}

/// How many of the first texts fit: whole ones, and the last are dropped first.
fn fitting(sizes: &[usize]) -> usize {
    let mut fitting = sizes.len();
    while sizes[..fitting].iter().sum::<usize>() > PROSE_BYTES_MAX {
        fitting -= 1;
    }
    fitting
}

fn text(file: &Path) -> io::Result<String> {
    let invalid = |problem: &str| Err(io::Error::new(io::ErrorKind::InvalidData, problem.to_owned()));
    let metadata = std::fs::metadata(file)?;
    if !metadata.is_file() {
        return invalid("it is no file");
    }
    if metadata.len() > FILE_BYTES_MAX {
        return invalid("it is larger than 1 MiB");
    }
    std::fs::read_to_string(file)
}

fn parse(text: &str) -> Result<Skill, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    if lines.next().is_none_or(|first| first.trim_end() != "---") {
        return Err("it has no front matter: its first line must be ---".to_owned());
    }
    let mut front = String::new();
    let closed = lines.by_ref().find(|line| {
        let closes = line.trim_end() == "---";
        if !closes {
            front.push_str(line);
        }
        closes
    });
    if closed.is_none() {
        return Err("its front matter has no end: a line --- is missing".to_owned());
    }
    let prose: String = lines.collect();
    let front = mapping(&front)?;
    Ok(Skill {
        calls_itself: front.get(&Yaml::from_str("name")).and_then(Yaml::as_str).map(str::to_owned),
        allowed_tools: allowed_tools(&front)?,
        prose: prose.trim().to_owned(),
    })
}

type Front = yaml_rust2::yaml::Hash;

/// The one mapping of a front matter.
fn mapping(front: &str) -> Result<Front, String> {
    plain(front)?;
    // What can be scanned and not be loaded has one key twice; the words for it are those of the loader's own types.
    let unreadable = |_: yaml_rust2::ScanError| "its front matter has the same key twice".to_owned();
    let mut documents = YamlLoader::load_from_str(front).map_err(unreadable)?.into_iter();
    match (documents.next(), documents.next()) {
        (None | Some(Yaml::Null), None) => Ok(Front::new()),
        (Some(Yaml::Hash(front)), None) => Ok(front),
        _ => Err("its front matter must be keys with values".to_owned()),
    }
}

/// Looks without building anything: an alias can grow without bound, and deep nesting can use up the stack.
fn plain(front: &str) -> Result<(), String> {
    let mut parser = Parser::new_from_str(front);
    let mut depth = 0;
    loop {
        let event = parser.next_token();
        let (event, _) = event.map_err(|error| format!("its front matter is not valid YAML: {error}"))?;
        match event {
            Event::StreamEnd => return Ok(()),
            Event::Alias(_) => return Err("its front matter has an alias, which is not read".to_owned()),
            // A tag can turn a text into what is none, and so a key into another.
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return Err("its front matter has a tag, which is not read".to_owned());
            }
            Event::SequenceStart(_, None) | Event::MappingStart(_, None) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth -= 1,
            Event::Nothing
            | Event::StreamStart
            | Event::DocumentStart
            | Event::DocumentEnd
            | Event::Scalar(_, _, _, None) => {}
        }
        if depth > DEPTH_MAX {
            return Err("its front matter is nested too deep".to_owned());
        }
    }
}

/// No key: no opinion. A key without a value: nothing (G6).
fn allowed_tools(front: &Front) -> Result<Option<Vec<String>>, String> {
    let plain = |key: &str| -> String { key.chars().filter(char::is_ascii_alphanumeric).collect() };
    for key in front.keys() {
        // Passed over, each of these would be no opinion at all, which is surely not what it says.
        let Some(key) = key.as_str() else {
            return Err("its front matter has a key that is no text".to_owned());
        };
        if key == "<<" {
            return Err("its front matter has a merge (<<), which is not read".to_owned());
        }
        if key != ALLOWED_TOOLS && plain(key).eq_ignore_ascii_case("allowedtools") {
            return Err(format!("the key {key} is unknown; did you mean {ALLOWED_TOOLS}?"));
        }
    }
    let wrong = || format!("{ALLOWED_TOOLS} must be a list of names, or names with spaces between them");
    let Some(value) = front.get(&Yaml::from_str(ALLOWED_TOOLS)) else { return Ok(None) };
    let names = match value {
        Yaml::Null => Vec::new(),
        Yaml::String(names) => names.split_whitespace().map(str::to_owned).collect(),
        Yaml::Array(names) => names
            .iter()
            .map(|name| name.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(wrong)?,
        Yaml::Real(_)
        | Yaml::Integer(_)
        | Yaml::Boolean(_)
        | Yaml::Hash(_)
        | Yaml::Alias(_)
        | Yaml::BadValue => return Err(wrong()),
    };
    Ok(Some(names))
}

#[cfg(test)]
mod tests;
