//! `countersign keys`: another master key, while everything goes on.
//!
//! Invariant: at every moment the key file, or the file beside it, holds a key that opens the database; so the command
//! can be cut anywhere and run again. A change that has begun is finished before another begins.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use countersign_store::{MasterKey, RotateError, Rotated, Rotation};
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::key::{self, KEY_VARIABLE};
use crate::setup::SetupError;
use crate::{escape, show};

use super::db::counted;
use super::session::{Invocation, Session};
use super::{Exit, Failure};

/// How long those that work without having anything in hand get to learn the new key. They look for work, and learn with
/// that, several times as often.
const LEARNING: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a new master key, hang everything from it, and retire the old one; run it again after whatever cut it short
    #[command(
        after_help = "Exit status: 0 the old key opens nothing any more; 3 not yet: do what is said, then run it again; \
        4 it could not be done."
    )]
    Rotate(Rotate),
}

#[derive(Debug, Args)]
struct Rotate {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What is to be done now.
enum Plan {
    /// Everything is to hang from this key, which is not in its place yet.
    To(MasterKey),
    /// This key is in its place: the rest of a change is to be done.
    Finish(MasterKey),
}

/// What has been done.
struct Told {
    from: String,
    to: String,
    rotated: Rotated,
    file: PathBuf,
}

/// Changes the key.
pub(crate) async fn run(arguments: Arguments, invocation: Invocation) -> Result<Exit, Failure> {
    let What::Rotate(Rotate { json }) = arguments.what;
    let session = Session::open(invocation, None).await?;
    let setup = &session.setup;
    let (file, in_environment) = (setup.config.key_file.clone(), from_environment(&setup.environment));
    let place = setup.config.database.place();
    let turn = key::take_turn(&file).map_err(|error| {
        if let key::KeyError::Busy(_) = &error {
            return Failure::ended(format!("{error}; when it has ended, look what it said"));
        }
        SetupError::from(error).into()
    })?;
    let current = match key::find(setup.environment.get(KEY_VARIABLE), &file).map_err(SetupError::from)? {
        Some(key) => key,
        None => key::make_for(&place, true, &file, &*setup.clock).map_err(SetupError::from)?,
    };
    let under_way = setup.store.rotation().await;
    let under_way = under_way.map_err(|fault| Failure::store("nothing was changed", &fault))?;
    let from = under_way.as_ref().map_or_else(|| current.fingerprint(), |rotation| rotation.from.clone());
    let plan = plan(&session, &current, under_way.as_ref())?;
    let (to, in_place) = match plan {
        Plan::To(key) => (key, false),
        Plan::Finish(key) => (key, true),
    };
    let fingerprint = to.fingerprint();
    let rotated = setup.store.rotate(to, &mut |_| {}).await;
    // It was switched before, and there is nothing left to take over.
    let rotated = match rotated {
        Err(RotateError::SameKey) => Rotated::default(),
        rotated => rotated.map_err(|error| failed(&error))?,
    };
    let told = Told { from, to: fingerprint, rotated, file: key::next(&file) };
    if in_environment && !in_place {
        return Ok(told.set_the_variable(json));
    }
    if !in_place {
        key::put_in_place(&file, &told.to, &turn).map_err(SetupError::from)?;
    }
    setup.clock.sleep(LEARNING).await;
    match setup.store.retire(setup.clock.now()).await {
        Ok(_) => Ok(told.done(json, in_environment)),
        Err(RotateError::InUse { until }) => Ok(told.in_use(json, &show::moment(until))),
        Err(error) => Err(failed(&error)),
    }
}

fn from_environment(environment: &Environment) -> bool {
    environment.get(KEY_VARIABLE).is_some()
}

fn plan(session: &Session, current: &MasterKey, under_way: Option<&Rotation>) -> Result<Plan, Failure> {
    let setup = &session.setup;
    let file = &setup.config.key_file;
    let next = key::read_next(file).map_err(SetupError::from)?;
    let beside = key::next(file);
    match (under_way, next) {
        (Some(rotation), _) if rotation.to == current.fingerprint() => Ok(Plan::Finish(current.clone())),
        (Some(rotation), Some(next)) if rotation.to == next.fingerprint() => Ok(Plan::To(next)),
        (Some(rotation), _) => Err(Failure::usage(format!(
            "a change to the key {} is under way, and that key is neither in use here nor in {}; run this with it",
            rotation.to,
            beside.display()
        ))),
        (None, Some(next)) if next.fingerprint() == current.fingerprint() => Err(Failure::usage(format!(
            "{} holds the key in use, from the last change; remove it once {KEY_VARIABLE} is kept elsewhere, then run \
             this again",
            beside.display()
        ))),
        // An earlier attempt was cut off before it told the database.
        (None, Some(next)) => Ok(Plan::To(next)),
        (None, None) => Ok(Plan::To(key::make_next(file, &*setup.clock).map_err(SetupError::from)?)),
    }
}

fn failed(error: &RotateError) -> Failure {
    if let RotateError::Fault(fault) = error {
        return Failure::store("the change of keys did not come to its end; run it again", fault);
    }
    Failure::ended(format!("{error}; run `keys rotate` again"))
}

impl Told {
    fn say(&self, json: bool, more: Value, lines: &[String]) {
        if json {
            let mut all = json!({
                "from": self.from, "to": self.to, "runs": self.rotated.runs, "unreadable": self.rotated.unreadable,
            });
            if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
                all.extend(more);
            }
            show::out(&escape::json(&all));
            return;
        }
        show::out(&format!(
            "Everything hangs from the key {} now, and no longer from {} (taken over: {}).",
            self.to,
            self.from,
            counted(self.rotated.runs, "run")
        ));
        if self.rotated.unreadable > 0 {
            show::out(&format!(
                "Cannot be read with either key, and stays as it is: {}.",
                counted(self.rotated.unreadable, "run")
            ));
        }
        lines.iter().for_each(|line| show::out(line));
    }

    fn set_the_variable(&self, json: bool) -> Exit {
        let file = self.file.display().to_string();
        let lines = [format!(
            "The new key is in {}. Set {KEY_VARIABLE} to what is in it wherever countersign runs, then run `keys \
             rotate` again: until then the old key still opens the database.",
            escape::line(&file)
        )];
        self.say(json, json!({ "retired": false, "in_use_until": null, "next_key_file": file }), &lines);
        Exit::Waiting
    }

    fn in_use(&self, json: bool, until: &str) -> Exit {
        let lines = [format!(
            "A worker may still need the old key until {until}. Run `keys rotate` again after that, to retire it."
        )];
        self.say(json, json!({ "retired": false, "in_use_until": until, "next_key_file": null }), &lines);
        Exit::Waiting
    }

    fn done(&self, json: bool, in_environment: bool) -> Exit {
        let mut lines =
            vec!["The old key opens nothing any more, except backups that were made before.".to_owned()];
        if in_environment {
            let file = escape::line(&self.file.display().to_string());
            lines.push(format!("Remove {file} if it is there, once {KEY_VARIABLE} is kept elsewhere."));
        }
        self.say(json, json!({ "retired": true, "in_use_until": null, "next_key_file": null }), &lines);
        Exit::Done
    }
}
