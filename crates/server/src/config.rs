//! The configuration: found, read, and parsed into the names of the core, or refused with file, line and key.
//!
//! Invariant: everything past this module is typed and known. There are no keys that are read and not used, and
//! no secrets: those come from the environment, of which the file holds only names. Not here: what the
//! configuration builds (`setup`), which model is at hand without one (`at_hand`).

mod document;
pub(crate) mod duration;
pub(crate) mod nearest;
mod settings;
mod telemetry;
mod tools;
mod watching;
mod web;
mod webhooks;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign::{
    AgentName, Enforcement, GroupName, ITERATIONS_DEFAULT, Lease, ModelRef, ProviderName, Zone,
};
use countersign_store::PostgresAddress;

use crate::environment::Environment;
use document::{Document, Section};
pub(crate) use settings::{FETCH_PAGE, ToolSettings};
pub(crate) use telemetry::Telemetry;
pub(crate) use tools::{ALWAYS_THERE, BUILT_IN, Tool, Way};
pub(crate) use watching::{Log, LogFormat, LogLevel};
pub(crate) use web::{PublicUrl, listen};
pub(crate) use webhooks::{Webhook, subscriptions};

/// The name of the file that is looked for.
pub(crate) const FILE: &str = "countersign.toml";
/// The variable that names another.
pub(crate) const CONFIG_VARIABLE: &str = "COUNTERSIGN_CONFIG";
/// The variable that names the key file, before the configuration does.
const KEY_FILE_VARIABLE: &str = "COUNTERSIGN_KEY_FILE";
/// The folder of the state, beside the file.
pub(crate) const STATE: &str = ".countersign";
/// The database in the folder of the state, where nobody names another.
const DATABASE: &str = "countersign.db";
/// How long a silent worker keeps a run, where nobody says otherwise.
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// How many runs one process drives at once, where nobody says otherwise.
const CONCURRENCY_DEFAULT: NonZeroUsize = NonZeroUsize::new(16).unwrap();
/// More runs than this at once are surely not meant.
const CONCURRENCY_MAX: usize = 10_000;
/// The grace for calls in flight, where nobody says otherwise: below the 30 seconds that supervisors usually wait.
const DRAIN_DEFAULT: Duration = Duration::from_secs(25);
/// A lease shorter than this is lost between two heartbeats by an ordinary pause of the machine.
const LEASE_MIN: Duration = Duration::from_millis(500);

/// No model has a smaller context window, and no task would fit into one.
const WINDOW_MIN: u64 = 256;

/// Where runs are kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Database {
    /// In this file.
    Sqlite(PathBuf),
    /// In this PostgreSQL; its password comes from the environment.
    Postgres(Box<PostgresAddress>),
}

impl Database {
    /// What it is called.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Sqlite(file) => file.display().to_string(),
            Self::Postgres(address) => address.place().to_owned(),
        }
    }

    /// The file, if it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(file) => Some(file),
            Self::Postgres(_) => None,
        }
    }
}

/// What the program is set up from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// The file; absent when there is none and everything is a default.
    pub(crate) file: Option<PathBuf>,
    /// The folder of the file; without one, the working folder.
    pub(crate) folder: PathBuf,
    /// Where runs are kept.
    pub(crate) database: Database,
    /// The key file.
    pub(crate) key_file: PathBuf,
    /// What the file tools may see; absent: no file tools.
    pub(crate) workspace: Option<PathBuf>,
    /// The providers, in the order of their names.
    pub(crate) providers: Vec<Provider>,
    /// The tools that the operator declares, in their order.
    pub(crate) tools: Vec<Tool>,
    /// What the operator says about tools that are there without them, in the order of the names.
    pub(crate) tool_settings: Vec<ToolSettings>,
    /// The folders in which skills lie.
    pub(crate) skill_paths: Vec<PathBuf>,
    /// The agents, in the order of their names; none: one `default` with the model at hand.
    pub(crate) agents: Vec<Agent>,
    /// Whether data classes are enforced (P8).
    pub(crate) enforcement: Enforcement,
    /// How long a silent worker keeps a run (R6).
    pub(crate) lease: Duration,
    /// The most runs that one process drives at once.
    pub(crate) concurrency: NonZeroUsize,
    /// How long calls in flight may take to come back when the process is to end.
    pub(crate) drain: Duration,
    /// Where `serve` listens.
    pub(crate) listen: SocketAddr,
    /// What it is called from outside; absent: only by its address.
    pub(crate) public_url: Option<PublicUrl>,
    /// What `serve` and `work` write down on stderr.
    pub(crate) log: Log,
    /// Who is told that a run waits, in the order of the names.
    pub(crate) webhooks: Vec<Webhook>,
    /// Where the work on runs is traced; absent: nowhere.
    pub(crate) telemetry: Option<Telemetry>,
}

/// One provider.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Provider {
    /// Its name.
    pub(crate) name: ProviderName,
    /// The line of its table.
    pub(crate) line: usize,
    /// How it is spoken to.
    pub(crate) kind: Kind,
    /// Where it stands; absent: nobody said, which counts as the least trusted (P6).
    pub(crate) zone: Option<Zone>,
}

/// How a provider is spoken to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Chat Completions.
    OpenAi {
        /// Up to the version.
        base_url: String,
        /// The variable that holds the key.
        api_key_env: Option<String>,
    },
    /// The script.
    Demo,
}

/// One agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Agent {
    /// Its name.
    pub(crate) name: AgentName,
    /// The chain, and the line it stands in.
    pub(crate) models: (Vec<ModelRef>, usize),
    /// What every conversation begins with.
    pub(crate) system_prompt: Option<String>,
    /// G5, and the line it stands in.
    pub(crate) tool_groups: (Vec<GroupName>, usize),
    /// The names of its skills, and the line they stand in (G6).
    pub(crate) skills: (Vec<String>, usize),
    /// The cap of iterations (L1).
    pub(crate) max_iterations: u32,
    /// The budget of tokens (L5).
    pub(crate) max_tokens: Option<u64>,
    /// The budget of working time (L5).
    pub(crate) max_working_time: Option<Duration>,
    /// The context window in tokens that fits every model of the chain (L6).
    pub(crate) context_window: Option<u64>,
    /// How long a question stays open; absent: for ever.
    pub(crate) approval_ttl: Option<Duration>,
    /// Four eyes.
    pub(crate) second_approver: bool,
    /// The line of its table.
    pub(crate) line: usize,
}

/// Why there is no configuration to work with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration {} cannot be read: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something in it is wrong.
    #[error("{}:{line}: {problem}", file.display())]
    Wrong {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, naming the key.
        problem: String,
    },
}

/// Also where it cannot be read, such as a link to nothing: it stands for a configuration, and doing without what
/// that one says would be more than it allows.
fn is_there(file: &Path) -> bool {
    !file.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

impl Config {
    /// Finds and reads the configuration: the file that was named, the one of `COUNTERSIGN_CONFIG`, or the
    /// nearest `countersign.toml` in the working folder or above. Without a file everything is a default.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub(crate) fn find(named: Option<&Path>, environment: &Environment) -> Result<Self, ConfigError> {
        let folder = &environment.folder;
        let named = named.or_else(|| environment.get(CONFIG_VARIABLE).map(Path::new));
        let file = match named {
            Some(named) => Some(folder.join(named)),
            None => folder.ancestors().map(|above| above.join(FILE)).find(|file| is_there(file)),
        };
        let config = match file {
            Some(file) => Self::read(&file)?,
            None => Self::without_file(folder),
        };
        Ok(config.with_key_file_of(environment))
    }

    /// With the key file that the environment names, if it names one: where a supervisor hands keys on, the place
    /// depends on whom it hands them to.
    fn with_key_file_of(self, environment: &Environment) -> Self {
        match environment.get(KEY_FILE_VARIABLE) {
            Some(file) => Self { key_file: environment.folder.join(file), ..self },
            None => self,
        }
    }

    /// Without a file: the defaults of the nearest folder that has a database, the working folder or one above it.
    /// The workspace is that folder too: a run goes on over the files that it was started with.
    pub(crate) fn at_the_nearest_state(self, environment: &Environment) -> Self {
        let has_state = |above: &&Path| above.join(STATE).join(DATABASE).exists();
        match environment.folder.ancestors().find(has_state) {
            Some(above) if self.file.is_none() => Self::without_file(above).with_key_file_of(environment),
            Some(_) | None => self,
        }
    }

    fn read(file: &Path) -> Result<Self, ConfigError> {
        // A pipe would be waited for: what is no file is no configuration.
        let text = std::fs::metadata(file).and_then(|found| match found.is_file() {
            true => std::fs::read_to_string(file),
            false => Err(std::io::Error::other("it is not a file")),
        });
        let text = text.map_err(|source| ConfigError::File { file: file.to_owned(), source })?;
        Self::parse(file, &text)
    }

    /// File tools over the working folder, and one agent.
    fn without_file(folder: &Path) -> Self {
        Self {
            file: None,
            folder: folder.to_owned(),
            database: Database::Sqlite(folder.join(STATE).join(DATABASE)),
            key_file: folder.join(STATE).join("key"),
            workspace: Some(folder.to_owned()),
            providers: Vec::new(),
            tools: Vec::new(),
            tool_settings: Vec::new(),
            skill_paths: Vec::new(),
            agents: Vec::new(),
            enforcement: Enforcement::Enforce,
            lease: LEASE_DEFAULT,
            concurrency: CONCURRENCY_DEFAULT,
            drain: DRAIN_DEFAULT,
            listen: web::LISTEN_DEFAULT,
            public_url: None,
            log: Log::default(),
            webhooks: Vec::new(),
            telemetry: None,
        }
    }

    fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let document = Document::parse(file, text)?;
        let top = document.top(&[
            "listen",
            "public_url",
            "database",
            "key_file",
            "workspace",
            "providers",
            "agents",
            "tools",
            "tool_settings",
            "skills",
            "policy",
            "workers",
            "log",
            "webhooks",
            "telemetry",
        ])?;
        let folder = file.parent().unwrap_or(Path::new("/"));
        let defaults = Self::without_file(folder);
        let database = top.parsed("database", |value| database(folder, value))?;
        let policy = top.section("policy", &["data_class_enforcement"])?;
        let enforcement =
            policy.as_ref().map(|policy| policy.text("data_class_enforcement")).transpose()?.flatten();
        let skills = top.section("skills", &["paths"])?;
        let skills = skills.map(|skills| skills.list("paths", |path| Ok(below(folder, path)))).transpose()?;
        let tools = top.tables("tools", tools::KEYS, tools::tool)?;
        tools::check_names(&tools, |line, problem| document.wrong_line(line, problem))?;
        let workers = top.section("workers", &["concurrency", "lease", "drain"])?;
        let workers = workers.as_ref();
        let lease = workers.map(|workers| workers.parsed("lease", lease)).transpose()?.flatten();
        let drain = workers.map(|workers| workers.parsed("drain", duration::parse)).transpose()?.flatten();
        let concurrency = workers.map(|workers| workers.number("concurrency", 1, CONCURRENCY_MAX));
        let concurrency = concurrency.transpose()?.flatten().and_then(NonZeroUsize::new);
        let log = top.section("log", &["format", "level"])?.map(|log| {
            Ok(Log {
                format: log.parsed("format", watching::format)?.unwrap_or(Log::default().format),
                level: log.parsed("level", watching::level)?.unwrap_or(Log::default().level),
            })
        });
        let telemetry = top.section("telemetry", telemetry::KEYS)?;
        let public_url = top.parsed("public_url", PublicUrl::parse)?;
        let webhooks = top.named("webhooks", webhooks::KEYS, webhooks::webhook)?;
        if let (Some(first), None) = (webhooks.first(), &public_url) {
            let problem = format!(
                "webhooks.{}: the key public_url is missing: a message holds a link to it",
                first.name
            );
            return Err(document.wrong_line(first.line, problem));
        }
        Ok(Self {
            file: Some(file.to_owned()),
            database: database.unwrap_or(defaults.database),
            key_file: top.text("key_file")?.map_or(defaults.key_file, |path| below(folder, path)),
            workspace: top.text("workspace")?.map(|path| below(folder, path)),
            providers: top.named("providers", PROVIDER_KEYS, provider)?,
            tools,
            tool_settings: top.named("tool_settings", settings::KEYS, settings::settings)?,
            skill_paths: skills.flatten().unwrap_or_default(),
            agents: top.named("agents", AGENT_KEYS, agent)?,
            enforcement: Enforcement::from_setting(enforcement),
            lease: lease.unwrap_or(LEASE_DEFAULT),
            concurrency: concurrency.unwrap_or(CONCURRENCY_DEFAULT),
            drain: drain.unwrap_or(DRAIN_DEFAULT),
            listen: top.parsed("listen", web::listen)?.unwrap_or(defaults.listen),
            public_url,
            webhooks,
            telemetry: telemetry.as_ref().map(telemetry::telemetry).transpose()?,
            log: log.transpose()?.unwrap_or_default(),
            folder: defaults.folder,
        })
    }

    /// A line of the file, for a message.
    pub(crate) fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.file.as_deref().unwrap_or(Path::new(FILE)).display())
    }

    /// An error about a line of the file, found after it was read.
    pub(crate) fn wrong(&self, line: usize, problem: String) -> ConfigError {
        ConfigError::Wrong {
            file: self.file.clone().unwrap_or_else(|| self.folder.join(FILE)),
            line,
            problem,
        }
    }
}

const PROVIDER_KEYS: &[&str] = &["kind", "base_url", "api_key_env", "zone"];
const AGENT_KEYS: &[&str] = &[
    "models",
    "system_prompt",
    "tool_groups",
    "skills",
    "max_iterations",
    "max_tokens",
    "max_working_time",
    "context_window",
    "approval_ttl",
    "second_approver",
];

/// A path of the file, which starts at the folder of the file; without the `.` in it.
fn below(folder: &Path, path: &str) -> PathBuf {
    folder.join(path).components().collect()
}

fn database(folder: &Path, value: &str) -> Result<Database, String> {
    if value.starts_with("postgres:") || value.starts_with("postgresql:") {
        let address = PostgresAddress::parse(value).map_err(|error| error.to_string())?;
        return Ok(Database::Postgres(Box::new(address)));
    }
    match value.strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() => Ok(Database::Sqlite(below(folder, path))),
        _ => Err("a database is written \"sqlite:PATH\" or \"postgres://USER@HOST/NAME\"".to_owned()),
    }
}

fn lease(value: &str) -> Result<Duration, String> {
    let lease = duration::parse(value)?;
    if lease < LEASE_MIN {
        Err("a lease is at least 500ms".to_owned())
    } else if lease > Lease::LONGEST {
        Err("a lease is at most 10m".to_owned())
    } else {
        Ok(lease)
    }
}

fn zone(word: &str) -> Result<Zone, String> {
    let words = Zone::ALL.map(Zone::as_str);
    Zone::ALL.into_iter().find(|zone| zone.as_str() == word).ok_or_else(|| one_of(&words))
}

fn one_of(words: &[&str]) -> String {
    format!("it must be one of {}", words.join(", "))
}

fn provider(name: &str, section: &Section<'_>) -> Result<Provider, ConfigError> {
    let name = ProviderName::parse(name).map_err(|error| section.wrong(&error.to_string()))?;
    let kind =
        section.text("kind")?.ok_or_else(|| section.wrong("the key kind is missing (openai or demo)"))?;
    let zone = section.parsed("zone", zone)?;
    let (base_url, api_key_env) = (section.text("base_url")?, section.text("api_key_env")?);
    let kind = match kind {
        "openai" => Kind::OpenAi {
            base_url: base_url.ok_or_else(|| section.wrong("the key base_url is missing"))?.to_owned(),
            api_key_env: api_key_env.map(str::to_owned),
        },
        "demo" => {
            for (key, given) in [("base_url", base_url), ("api_key_env", api_key_env)] {
                if given.is_some() {
                    return Err(section.wrong_at(key, "a provider of kind demo has none: it is a script"));
                }
            }
            Kind::Demo
        }
        "anthropic" | "ollama" => {
            return Err(section
                .wrong_at("kind", "this kind is not supported by this build; it must be openai or demo"));
        }
        _ => return Err(section.wrong_at("kind", &one_of(&["openai", "demo"]))),
    };
    Ok(Provider { name, line: section.line(), kind, zone })
}

fn agent(name: &str, section: &Section<'_>) -> Result<Agent, ConfigError> {
    let name = AgentName::parse(name).map_err(|error| section.wrong(&error.to_string()))?;
    let models = section.list("models", |model| ModelRef::parse(model).map_err(|error| error.to_string()))?;
    let models = models.filter(|models| !models.is_empty());
    let groups =
        section.list("tool_groups", |group| GroupName::parse(group).map_err(|error| error.to_string()))?;
    Ok(Agent {
        models: (
            models.ok_or_else(|| {
                section.wrong("the key models is missing or empty: it needs at least one PROVIDER/MODEL")
            })?,
            section.line_of("models"),
        ),
        system_prompt: section.text("system_prompt")?.map(str::to_owned),
        tool_groups: (groups.unwrap_or_default(), section.line_of("tool_groups")),
        skills: (section.list("skills", skill)?.unwrap_or_default(), section.line_of("skills")),
        max_iterations: section.number("max_iterations", 1, 10_000)?.unwrap_or(ITERATIONS_DEFAULT),
        max_tokens: section.number("max_tokens", 1, u64::MAX)?,
        max_working_time: section.parsed("max_working_time", working_time)?,
        context_window: section.number("context_window", WINDOW_MIN, u64::MAX)?,
        approval_ttl: section.parsed("approval_ttl", approval_ttl)?,
        second_approver: section.flag("second_approver")?.unwrap_or(false),
        line: section.line(),
        name,
    })
}

/// The name of a folder, and nothing that leads elsewhere.
fn skill(name: &str) -> Result<String, String> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    if name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.len() <= 64
        && name.chars().all(allowed)
    {
        return Ok(name.to_owned());
    }
    Err("a skill is named by its folder: letters, digits, _ . -, at most 64, the first no sign".to_owned())
}

fn working_time(value: &str) -> Result<Duration, String> {
    let time = duration::parse(value)?;
    if time.is_zero() { Err("a run needs some time to work in".to_owned()) } else { Ok(time) }
}

/// The record keeps whole seconds.
fn approval_ttl(value: &str) -> Result<Duration, String> {
    let ttl = duration::parse(value)?;
    if ttl < Duration::from_secs(1) {
        Err("a question stays open for at least 1s".to_owned())
    } else {
        Ok(ttl)
    }
}

#[cfg(test)]
mod tests;
