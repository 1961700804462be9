//! All tools of this process: the built-in ones, then those that the operator declares, each with what the operator
//! says about it.
//!
//! Invariant: a setting never loosens what a tool declares about itself (A1), except whether it is on by default
//! and, for `fetch_page`, which hosts it may reach.
//! The state does not exist for the file tools, and configuration and skills are read-only for them (S2).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign::{
    Arguments, CallContext, Clock, ModelRef, OperatorWord, Pause, PreviewContext, Registry, RegistryError,
    Store, Tool, ToolError, ToolName, ToolOutput, ToolPreview, ToolSpec,
};
use countersign_clients::{
    CommandTool, CommandToolConfig, FetchPage, FetchPageConfig, HttpTool, HttpToolConfig,
};
use countersign_tools::{Workspace, file_tools, status_tools};

use super::{Setup, SetupError, make_folder};
use crate::config::nearest::nearest;
use crate::config::{BUILT_IN, Config, FETCH_PAGE, FILE, STATE, ToolSettings, Way};
use crate::environment::Environment;
use crate::{key, skills, tour};

/// What tools are made of, besides the folder of the file tools.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    /// What was configured.
    pub(crate) config: &'a Config,
    /// What came from outside.
    pub(crate) environment: &'a Environment,
    /// Where runs are kept.
    pub(crate) store: Arc<dyn Store>,
    /// Time and chance.
    pub(crate) clock: Arc<dyn Clock>,
}

impl Setup {
    /// The tools of runs that this model serves.
    pub(super) fn tools(&self, model: Option<&ModelRef>) -> Result<Registry, SetupError> {
        let files = match self.workspace_of(model) {
            None => Vec::new(),
            Some(root) => {
                let is_tour = model.is_some_and(|model| self.is_tour(model));
                if is_tour {
                    make_folder(&self.config.folder.join(STATE))?;
                    let made = tour::ensure(&root);
                    made.map_err(|source| SetupError::Folder { folder: root.clone(), source })?;
                }
                file_tools_of(&self.config, &root, is_tour)?
            }
        };
        let bench = Bench {
            config: &self.config,
            environment: &self.environment,
            store: Arc::clone(&self.store) as Arc<dyn Store>,
            clock: Arc::clone(&self.clock),
        };
        bench.registry(files)
    }
}

/// The file tools over a folder. The scratch folder of the tour lies in the folder of the state.
pub(crate) fn file_tools_of(
    config: &Config,
    root: &Path,
    is_tour: bool,
) -> Result<Vec<Arc<dyn Tool>>, SetupError> {
    let mut state = vec![config.key_file.clone(), key::next(&config.key_file)];
    state.extend(config.database.file().map(Path::to_owned));
    if !is_tour {
        state.push(config.folder.join(STATE));
    }
    let read_only: Vec<PathBuf> = [config.file.clone(), Some(root.join(FILE))]
        .into_iter()
        .flatten()
        .chain(config.skill_paths.iter().cloned())
        .chain(skills::real_places(config))
        .collect();
    Ok(file_tools(&Workspace::open(root, &state, &read_only)?)?)
}

impl Bench<'_> {
    /// Registers these file tools and all others.
    ///
    /// # Errors
    /// [`SetupError`], with the line of the configuration where one is to blame.
    pub(crate) fn registry(&self, files: Vec<Arc<dyn Tool>>) -> Result<Registry, SetupError> {
        let mut tools = files;
        tools.push(Arc::new(self.fetch_page()?));
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        tools.extend(status_tools(store, clock, env!("CARGO_PKG_VERSION"))?);
        for declared in &self.config.tools {
            tools.push(self.declared(declared)?);
        }
        self.check_names(&tools)?;
        let tools: Vec<_> = tools.into_iter().map(|tool| self.settled(tool)).collect::<Result<_, _>>()?;
        Registry::new(tools.into_iter().map(Into::into)).map_err(|error| self.not_registered(error))
    }

    /// Off, and without hosts, until the operator says otherwise. The other settings are as any tool's.
    fn fetch_page(&self) -> Result<FetchPage, SetupError> {
        let settings = self.settings(FETCH_PAGE);
        let hosts = settings.map(|settings| settings.hosts.clone()).unwrap_or_default();
        FetchPage::new(FetchPageConfig { hosts, ..FetchPageConfig::unsaid() })
            .map_err(|source| SetupError::BuiltIn { name: FETCH_PAGE, source })
    }

    fn settings(&self, name: &str) -> Option<&ToolSettings> {
        self.config.tool_settings.iter().find(|settings| settings.name.as_str() == name)
    }

    fn declared(&self, declared: &crate::config::Tool) -> Result<Arc<dyn Tool>, SetupError> {
        let (spec, preview, timeout) = (declared.spec.clone(), declared.preview.clone(), declared.timeout);
        let made: Result<Arc<dyn Tool>, _> = match &declared.way {
            Way::Http(url) => HttpTool::new(HttpToolConfig { spec, url: url.clone(), preview, timeout })
                .map(|tool| Arc::new(tool) as _),
            Way::Command(command) => CommandTool::new(CommandToolConfig {
                spec,
                command: command.clone(),
                folder: self.config.workspace.as_ref().unwrap_or(&self.config.folder).clone(),
                timeout,
                environment: self.environment.for_commands(),
                preview,
            })
            .map(|tool| Arc::new(tool) as _),
        };
        made.map_err(|source| SetupError::Tool {
            place: self.config.place(declared.line),
            name: declared.spec.name.clone(),
            source,
        })
    }

    /// A setting of a tool that cannot be there is a mistake; one of a file tool waits for a workspace.
    fn check_names(&self, tools: &[Arc<dyn Tool>]) -> Result<(), SetupError> {
        let specs: Vec<ToolSpec> = tools.iter().map(|tool| tool.spec()).collect();
        let known: Vec<&str> =
            BUILT_IN.into_iter().chain(specs.iter().map(|spec| spec.name.as_str())).collect();
        for ToolSettings { name, line, .. } in &self.config.tool_settings {
            if known.contains(&name.as_str()) {
                continue;
            }
            let hint = match nearest(name.as_str(), &known) {
                Some(near) => format!("did you mean {near}?"),
                None => "`countersign tools list` shows those there are".to_owned(),
            };
            let problem = format!("tool_settings.{name}: there is no tool of this name; {hint}");
            return Err(self.config.wrong(*line, problem).into());
        }
        Ok(())
    }

    /// The tool as the operator wants it.
    fn settled(&self, tool: Arc<dyn Tool>) -> Result<Arc<dyn Tool>, SetupError> {
        let mut spec = tool.spec();
        let Some(settings) = self.config.tool_settings.iter().find(|settings| settings.name == spec.name)
        else {
            return Ok(tool);
        };
        let wrong = |line: usize, key: &str, problem: &str| {
            self.config.wrong(line, format!("tool_settings.{}.{key}: {problem}", settings.name))
        };
        if let Some(enabled) = settings.enabled {
            spec.enabled_by_default = enabled;
        }
        if settings.asks {
            if let Pause::NeedsInput(_) = spec.pause {
                let problem = "this tool needs input, so it cannot ask for approval as well";
                return Err(wrong(settings.line, "approval", problem).into());
            }
            spec.operator = OperatorWord::Asks;
        }
        if let Some((requires_admin, line)) = settings.requires_admin {
            if spec.requires_admin && !requires_admin {
                let problem = "this tool is for administrators, and a setting may only tighten";
                return Err(wrong(line, "requires_admin", problem).into());
            }
            spec.requires_admin = requires_admin;
        }
        if let Some((data_class, line)) = settings.data_class {
            if data_class < spec.data_class {
                let own = spec.data_class.as_str();
                let problem = format!("the tool's own class is {own}, and a setting may only be stricter");
                return Err(wrong(line, "data_class", &problem).into());
            }
            spec.data_class = data_class;
        }
        Ok(Arc::new(Settled { tool, spec }))
    }

    /// Says where the tool is declared, if it is.
    fn not_registered(&self, error: RegistryError) -> SetupError {
        let declared = culprit(&error)
            .and_then(|name| self.config.tools.iter().find(|declared| declared.spec.name == *name));
        match declared {
            Some(declared) => self.config.wrong(declared.line, error.to_string()).into(),
            None => error.into(),
        }
    }
}

fn culprit(error: &RegistryError) -> Option<&ToolName> {
    if let RegistryError::DuplicateName(tool)
    | RegistryError::RemoteName(tool)
    | RegistryError::NeedsInputAndApproval(tool)
    | RegistryError::RemoteGroup { tool, .. }
    | RegistryError::BadSchema { tool, .. } = error
    {
        return Some(tool);
    }
    None
}

/// A tool with other facts, tighter ones.
struct Settled {
    tool: Arc<dyn Tool>,
    spec: ToolSpec,
}

#[async_trait]
impl Tool for Settled {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn timeout(&self) -> Duration {
        self.tool.timeout()
    }

    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        self.tool.call(arguments, cx).await
    }

    async fn preview(
        &self,
        arguments: &Arguments,
        cx: &PreviewContext,
    ) -> Option<Result<ToolPreview, ToolError>> {
        self.tool.preview(arguments, cx).await
    }
}

#[cfg(test)]
mod tests {
    use countersign::{MemoryStore, SystemClock};

    use super::*;

    #[test]
    fn the_list_of_built_in_tools_is_what_is_registered() {
        let folder = tempfile::tempdir().unwrap();
        let environment = Environment::of(folder.path(), &[]);
        let config = Config::find(None, &environment).unwrap();
        let bench = Bench {
            config: &config,
            environment: &environment,
            store: Arc::new(MemoryStore::new([0; 32])),
            clock: Arc::new(SystemClock),
        };
        let registry = bench.registry(file_tools_of(&config, folder.path(), false).unwrap()).unwrap();
        let names: Vec<&str> = registry.tools().map(|tool| tool.spec.name.as_str()).collect();
        assert_eq!(names, BUILT_IN);
    }
}
