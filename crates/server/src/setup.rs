//! Builds the runtime from the configuration: the only place that knows concrete types.
//!
//! Invariant: everything a run was started with is found again by another process with the same configuration
//! and environment, or the run is left alone. The state and the key do not exist for the file tools, and the
//! configuration is read-only for them (S2).

#[cfg(debug_assertions)]
mod dies_at;
mod tools;

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign::{
    Agent, AgentName, Agents, Clock, GroupSetting, Limits, Model, ModelRef, Models, NotAName, Parts,
    Provider as ModelProvider, Registry, RegistryError, RunLimits, Runtime, Store, SystemClock, ToolName,
    Zone,
};
use countersign_clients::{
    CollectorHeaders, DEMO_PROVIDER, Demo, OpenAi, OpenAiConfig, Secret, SetupError as ClientError,
    ToolSetupError,
};
use countersign_store::{OpenError, PostgresAddress, PostgresStore, SqliteOptions, SqliteStore, Upkeep};
use countersign_tools::OpenError as WorkspaceError;

use crate::config::{Config, ConfigError, Database, Kind, Provider, PublicUrl, STATE, subscriptions};
use crate::environment::Environment;
use crate::key::{self, KeyError};
use crate::metrics::Metrics;
use crate::observed::Observed;
use crate::skills::{self, InForce};
use crate::telemetry::{self, Telemetry};
use crate::webhooks::{self, Delivery, Receiver};
use crate::{at_hand, tour};
pub(crate) use tools::{Bench, file_tools_of};

/// How long one request to a model may take, its whole answer included.
const MODEL_TIMEOUT: Duration = Duration::from_secs(300);
/// How many reads of one turn run at once.
const PARALLEL_READS: usize = 8;
/// How often a driver looks whether somebody else wrote to its run.
const POLL: Duration = Duration::from_millis(250);

/// Why the program cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The model that was named.
    #[error("the model cannot be used: {0}")]
    Model(#[from] NotAName),
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The folder of the state or the scratch folder.
    #[error("the folder {} cannot be made: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database.
    #[error(transparent)]
    Database(#[from] OpenError),
    /// The workspace.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The tools.
    #[error(transparent)]
    Tools(#[from] RegistryError),
    /// A tool that the operator declares.
    #[error("{place}: the tool {name} cannot be used: {source}")]
    Tool {
        /// Where it is configured.
        place: String,
        /// Which.
        name: ToolName,
        /// Why.
        source: ToolSetupError,
    },
    /// A tool that ships with the program.
    #[error("the tool {name} cannot be set up: {source}")]
    BuiltIn {
        /// Which.
        name: &'static str,
        /// Why.
        source: ToolSetupError,
    },
    /// A provider that cannot be spoken to.
    #[error("{place}: the provider {name} cannot be used: {source}")]
    Provider {
        /// Where it is configured.
        place: String,
        /// Which.
        name: String,
        /// Why.
        source: ClientError,
    },
}

/// Everything that holds for all runs of this process.
#[derive(Debug)]
pub(crate) struct Setup {
    /// What was configured.
    pub(crate) config: Config,
    /// What came from outside.
    pub(crate) environment: Environment,
    /// Where runs are kept.
    pub(crate) store: Arc<dyn Upkeep>,
    /// Time and chance.
    pub(crate) clock: Arc<dyn Clock>,
    /// What counts and writes down what this process stores; absent: nothing does.
    pub(crate) metrics: Option<Arc<Metrics>>,
    /// Whoever traces the work of this process; absent: nobody.
    pub(crate) telemetry: Option<Telemetry>,
}

impl Setup {
    /// Finds the key, opens the database and brings it up to date.
    ///
    /// # Errors
    /// [`SetupError`].
    pub(crate) async fn open(config: Config, environment: Environment) -> Result<Self, SetupError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        for file in config.database.file().into_iter().chain([config.key_file.as_path()]) {
            if let Some(folder) = file.parent() {
                make_folder(folder)?;
            }
        }
        let found = key::find(environment.get(key::KEY_VARIABLE), &config.key_file)?;
        let key = match found {
            Some(key) => key,
            None => {
                let is_made = is_made(&config.database, &environment).await?;
                key::make_for(&config.database.place(), is_made, &config.key_file, &*clock)?
            }
        };
        let told = subscriptions(&config.webhooks);
        let (store, clock): (Arc<dyn Upkeep>, Arc<dyn Clock>) = match &config.database {
            Database::Sqlite(file) => {
                let store = SqliteStore::open(SqliteOptions::new(file), key, Arc::clone(&clock))?;
                (Arc::new(store.telling(told)), clock)
            }
            Database::Postgres(address) => {
                let store = PostgresStore::open(with_password(address, &environment), key, clock).await?;
                // All who work on it go by its clock, not by their machines'.
                let clock = store.clock();
                (Arc::new(store.telling(told)), clock)
            }
        };
        // Whoever only looks, or decides, need not know what the collector wants to be shown.
        let headers = Self::collector_headers(&config, &environment).ok().flatten();
        let telemetry = config.telemetry.as_ref().zip(headers);
        let telemetry = telemetry.map(|(told, headers)| Telemetry::start(told, headers, Arc::clone(&clock)));
        Ok(Self { config, environment, store, clock, metrics: None, telemetry })
    }

    /// Counts and writes down what the runtimes store that are made from now on.
    pub(crate) fn count(&mut self) -> Arc<Metrics> {
        let metrics = self.metrics.get_or_insert_default();
        if let Some(telemetry) = &self.telemetry {
            telemetry.count(metrics);
        }
        Arc::clone(metrics)
    }

    /// The model that serves a new run of this agent, if no other is asked for.
    ///
    /// # Errors
    /// [`SetupError::Model`].
    pub(crate) fn model_of(&self, agent: &AgentName) -> Result<Option<ModelRef>, SetupError> {
        let configured = self.config.agents.iter().find(|configured| configured.name == *agent);
        match configured {
            Some(configured) => Ok(configured.models.0.first().cloned()),
            None if self.config.agents.is_empty() => Ok(Some(at_hand::model(&self.environment)?)),
            None => Ok(None),
        }
    }

    /// Whether every skill that an agent names can be read (G6).
    ///
    /// # Errors
    /// [`SetupError::Config`], for the first that cannot.
    pub(crate) fn check_skills(config: &Config) -> Result<(), SetupError> {
        for agent in &config.agents {
            for name in &agent.skills.0 {
                skills::read(config, name).map_err(|error| {
                    config.wrong(
                        agent.skills.1,
                        format!("agents.{}.skills: the skill {name}: {error}", agent.name),
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Whether this model is the script that ships with the program, over its own files.
    pub(crate) fn is_tour(&self, model: &ModelRef) -> bool {
        model.provider.as_str() == DEMO_PROVIDER
            && !self.config.providers.iter().any(|known| known.name == model.provider)
    }

    /// Whether this model is a script.
    pub(crate) fn is_script(&self, model: &ModelRef) -> bool {
        let configured = self.config.providers.iter().find(|known| known.name == model.provider);
        self.is_tour(model) || configured.is_some_and(|provider| provider.kind == Kind::Demo)
    }

    /// What the file tools see in runs with this model.
    pub(crate) fn workspace_of(&self, model: Option<&ModelRef>) -> Option<PathBuf> {
        if model.is_some_and(|model| self.is_tour(model)) {
            return Some(tour::folder(&self.config.folder.join(STATE)));
        }
        self.config.workspace.clone()
    }

    /// Makes the files of the tour anew, for a new run of it.
    ///
    /// # Errors
    /// [`SetupError::Folder`].
    pub(crate) fn remake_tour(&self) -> Result<(), SetupError> {
        let state = self.config.folder.join(STATE);
        make_folder(&state)?;
        let folder = tour::folder(&state);
        tour::remake(&folder).map_err(|source| SetupError::Folder { folder, source })
    }

    /// A runtime that can close, cancel and look, and neither ask a model nor call a tool: it needs nothing but
    /// the store.
    pub(crate) fn without_tools(&self) -> Runtime {
        Runtime::new(Parts {
            store: self.runs(),
            models: Models::default(),
            tools: Registry::default(),
            agents: Agents::new(self.config.enforcement, []),
            limits: self.limits(),
            clock: Arc::clone(&self.clock),
        })
    }

    /// The store as a runtime has it.
    fn runs(&self) -> Arc<dyn Store> {
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        #[cfg(debug_assertions)]
        let store = dies_at::mortal(store, &self.environment);
        store
    }

    fn limits(&self) -> Limits {
        Limits { lease: self.config.lease, parallel_reads: PARALLEL_READS, poll: POLL }
    }

    /// The runtime for runs that this model serves.
    ///
    /// # Errors
    /// [`SetupError`].
    pub(crate) fn runtime(&self, model: Option<&ModelRef>) -> Result<Runtime, SetupError> {
        let tools = self.tools(model)?;
        let store = self.runs();
        let store: Arc<dyn Store> = match &self.metrics {
            Some(metrics) => {
                Arc::new(Observed::new(store, Arc::clone(metrics), Arc::clone(&self.clock), &tools))
            }
            None => store,
        };
        Ok(Runtime::new(Parts {
            store,
            models: self.models(model)?,
            tools,
            agents: self.agents(model)?,
            limits: self.limits(),
            clock: Arc::clone(&self.clock),
        }))
    }

    fn models(&self, served: Option<&ModelRef>) -> Result<Models, SetupError> {
        let mut providers = self.config.providers.clone();
        let spare = if self.config.agents.is_empty() {
            at_hand::providers(&self.environment)?
        } else {
            vec![at_hand::demo()?]
        };
        for provider in spare {
            if !providers.iter().any(|known| known.name == provider.name) {
                providers.push(provider);
            }
        }
        let mut models = Models::default();
        for provider in providers {
            let client = match client(&self.config, &self.environment, &provider) {
                Ok(client) => client,
                // One that nobody configured and this run does not ask for must not stand in its way.
                Err(_)
                    if provider.line == 0 && served.is_none_or(|model| model.provider != provider.name) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            let zone = provider.zone.unwrap_or(Zone::ExternalGlobal);
            models = models.with(provider.name, ModelProvider { zone, client });
        }
        Ok(models)
    }

    /// Whether every configured provider can be spoken to; nothing is sent.
    ///
    /// # Errors
    /// [`SetupError::Provider`], for the first that cannot.
    pub(crate) fn check_providers(config: &Config, environment: &Environment) -> Result<(), SetupError> {
        config.providers.iter().try_for_each(|provider| client(config, environment, provider).map(drop))
    }

    /// Who is told of runs; nothing is sent.
    ///
    /// # Errors
    /// [`SetupError::Config`], for the first that cannot be told.
    pub(crate) fn receivers(config: &Config, environment: &Environment) -> Result<Vec<Receiver>, SetupError> {
        webhooks::receivers(&config.webhooks, environment)
            .map_err(|(line, problem)| config.wrong(line, problem).into())
    }

    /// What the collector of traces wants sent along, if there is one; nothing is sent.
    ///
    /// # Errors
    /// [`SetupError::Config`].
    pub(crate) fn collector_headers(
        config: &Config,
        environment: &Environment,
    ) -> Result<Option<CollectorHeaders>, SetupError> {
        let Some(configured) = &config.telemetry else { return Ok(None) };
        let headers = telemetry::headers(configured, environment);
        let headers = headers.map_err(|error| config.wrong(configured.line, error.to_string()))?;
        Ok(Some(headers))
    }

    /// What tells them.
    pub(crate) fn delivery(&self, receivers: Vec<Receiver>) -> Delivery {
        Delivery {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            // Without webhooks there may be none, and nobody is told of it.
            origin: self.config.public_url.as_ref().map(PublicUrl::origin).unwrap_or_default(),
            receivers,
        }
    }

    fn agents(&self, model: Option<&ModelRef>) -> Result<Agents, SetupError> {
        let mut agents: Vec<Agent> =
            self.config.agents.iter().map(|configured| agent(&self.config, configured)).collect();
        if agents.is_empty() {
            let model = match model {
                Some(model) => model.clone(),
                None => at_hand::model(&self.environment)?,
            };
            agents.push(Agent::new(AgentName::parse("default")?, [model]));
        }
        Ok(Agents::new(self.config.enforcement, agents))
    }
}

/// The variable with the password of a PostgreSQL database.
const PASSWORD_VARIABLE: &str = "PGPASSWORD";

fn with_password(address: &PostgresAddress, environment: &Environment) -> PostgresAddress {
    let address = address.clone();
    match environment.get(PASSWORD_VARIABLE) {
        Some(password) => address.with_password(password),
        None => address,
    }
}

/// Whether there is a database, with something in it. Asking makes none.
///
/// # Errors
/// [`SetupError::Database`].
pub(crate) async fn is_made(database: &Database, environment: &Environment) -> Result<bool, SetupError> {
    match database {
        Database::Sqlite(file) => Ok(std::fs::metadata(file).is_ok_and(|file| file.len() > 0)),
        Database::Postgres(address) => {
            Ok(PostgresStore::is_made(&with_password(address, environment)).await?)
        }
    }
}

fn client(
    config: &Config,
    environment: &Environment,
    provider: &Provider,
) -> Result<Arc<dyn Model>, SetupError> {
    let (base_url, api_key_env) = match &provider.kind {
        Kind::Demo => return Ok(Arc::new(Demo)),
        Kind::OpenAi { base_url, api_key_env } => (base_url, api_key_env),
    };
    let api_key = api_key_env.as_deref().and_then(|name| environment.get(name));
    let client = OpenAi::new(OpenAiConfig {
        provider: provider.name.clone(),
        base_url: base_url.clone(),
        api_key: api_key.map(|key| Secret::new(key.to_owned())),
        timeout: MODEL_TIMEOUT,
    });
    let place = match (provider.line, api_key_env) {
        (0, Some(variable)) => format!("the variable {variable}"),
        (line, _) => config.place(line),
    };
    let client =
        client.map_err(|source| SetupError::Provider { place, name: provider.name.to_string(), source })?;
    Ok(Arc::new(client))
}

fn agent(config: &Config, configured: &crate::config::Agent) -> Agent {
    let InForce { skills, prose } = skills::in_force(config, &configured.skills.0);
    let own = configured.system_prompt.clone();
    let system_prompt = match (own, prose.trim_start()) {
        (own, "") => own,
        (None, prose) => Some(prose.to_owned()),
        (Some(own), prose) => Some(format!("{own}\n\n{prose}")),
    };
    Agent {
        name: configured.name.clone(),
        models: configured.models.0.clone(),
        system_prompt,
        groups: GroupSetting::from_list(configured.tool_groups.0.iter().cloned()),
        skills,
        limits: RunLimits {
            iterations_max: configured.max_iterations,
            tokens_max: configured.max_tokens,
            working_ms_max: configured
                .max_working_time
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            window_tokens: configured.context_window,
        },
        approval_ttl: configured.approval_ttl,
        second_approver: configured.second_approver,
    }
}

/// Makes a folder that only the account may enter. One that is there stays as it is.
pub(crate) fn make_folder(folder: &Path) -> Result<(), SetupError> {
    if folder.is_dir() {
        return Ok(());
    }
    let failed = |source| SetupError::Folder { folder: folder.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    if folder.ends_with(STATE) {
        // Key and database are nobody's to commit.
        std::fs::write(folder.join(".gitignore"), "*\n").map_err(failed)?;
    }
    Ok(())
}
