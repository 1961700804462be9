//! A script in the place of a model, for looking at a run without a key, a network or a cost.
//!
//! Invariant: what it says and calls is a function of the transcript and of what is offered, so a run goes on
//! after a restart where it was. It says in its first sentence that it is a script, calls only what is
//! offered, proposes its one correction only for a text it has just read, and reports a result in the
//! result's own words. Not here: any reading of the task; the scratch copy of the files (the program).

use std::collections::BTreeMap;

use async_trait::async_trait;
use countersign::{
    Answer, AnsweredCall, CallId, Conversation, Finish, Message, Model, ModelError, Offer, Opaque, Usage,
};
use serde_json::json;

/// The provider under which the program offers the script.
pub const DEMO_PROVIDER: &str = "demo";
/// The name of the one script there is; any other name gets the same one.
pub const DEMO_MODEL: &str = "tour";

/// The file with the mistake.
const NOTICE: &str = "opening-hours.md";
const MISTAKE: &str = "Sunday: 11:00 to 71:00";
const CORRECTION: &str = "Sunday: 11:00 to 17:00";
/// How much of a result the script repeats, in characters.
const QUOTED_CHARS_MAX: usize = 300;

/// The files of the tour, by name: what the scratch copy is made of.
pub fn tour_files() -> &'static [(&'static str, &'static str)] {
    &[
        ("README.md", include_str!("../../../examples/tour/README.md")),
        ("house-rules.md", include_str!("../../../examples/tour/house-rules.md")),
        ("opening-hours.md", include_str!("../../../examples/tour/opening-hours.md")),
        ("prices.md", include_str!("../../../examples/tour/prices.md")),
    ]
}

/// The script, as a provider of models.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demo;

impl Model for Demo {
    fn converse(&self, _model: &str) -> Box<dyn Conversation> {
        Box::new(Performance::default())
    }
}

/// The steps that are calls, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    List,
    Read,
    Edit,
}

impl Act {
    fn of(tool: &str) -> Option<Self> {
        [Self::List, Self::Read, Self::Edit].into_iter().find(|act| act.tool() == tool)
    }

    fn tool(self) -> &'static str {
        match self {
            Self::List => "list_files",
            Self::Read => "read_file",
            Self::Edit => "edit_file",
        }
    }

    fn arguments(self) -> String {
        match self {
            Self::List => json!({}),
            Self::Read => json!({ "path": NOTICE }),
            Self::Edit => json!({ "path": NOTICE, "find": MISTAKE, "replace": CORRECTION }),
        }
        .to_string()
    }

    /// What the script says with the call.
    fn announcement(self) -> String {
        match self {
            Self::List => format!(
                "This is a script, not a model: it does not read your task. It looks at the tour files, reads \
                 {NOTICE}, and proposes one correction, which a person must approve. First the list of files."
            ),
            Self::Read => format!("Script, step 2 of 3: reading {NOTICE}."),
            Self::Edit => format!(
                "Script, step 3 of 3: {NOTICE} says \"{MISTAKE}\". Proposing \"{CORRECTION}\" instead. Whether \
                 that is done is for a person to say."
            ),
        }
    }
}

/// What the script does next.
enum Cue {
    Call(Act),
    /// The closing words, after "This is a script, not a model."
    Close(String),
}

/// How far the script is, since the last thing a person said.
#[derive(Debug, Default)]
struct Performance {
    last: Option<(Act, CallId)>,
    results: BTreeMap<CallId, (String, bool)>,
}

impl Performance {
    fn next(&self, offers: &[Offer]) -> Cue {
        let next = match self.due() {
            Cue::Call(act) => act,
            closing @ Cue::Close(_) => return closing,
        };
        if offers.iter().any(|offer| offer.name.as_str() == next.tool()) {
            return Cue::Call(next);
        }
        let missing = match offers {
            [] => "no tools are offered to it here".to_owned(),
            [..] => format!("its next step is {}, which is not offered to it here", next.tool()),
        };
        let so_far = match next {
            Act::List => "Nothing was read and nothing was changed.".to_owned(),
            Act::Read => "It has seen the list of files; nothing was changed.".to_owned(),
            Act::Edit => {
                format!("It has read {NOTICE}, where \"{MISTAKE}\" is a mistake; nothing was changed.")
            }
        };
        Cue::Close(format!("It stops, because {missing}. {so_far}"))
    }

    /// What would come next if everything were offered.
    fn due(&self) -> Cue {
        let Some((act, call)) = &self.last else {
            return Cue::Call(Act::List);
        };
        let Some((words, is_error)) = self.results.get(call) else {
            return Cue::Close(format!("It stops: no result of {} is known.", act.tool()));
        };
        let words_in_quotes = quoted(words);
        match (act, is_error) {
            (Act::List, false) => Cue::Call(Act::Read),
            (Act::Read, false) if words.contains(MISTAKE) => Cue::Call(Act::Edit),
            (Act::Read, false) if words.contains(CORRECTION) => {
                Cue::Close(format!("{NOTICE} already says \"{CORRECTION}\": there is nothing to correct."))
            }
            (Act::Read, false) => {
                Cue::Close(format!("{NOTICE} is not the notice it knows: it proposes nothing."))
            }
            (Act::Edit, false) => Cue::Close(format!(
                "The correction came back as a success, in these words: {words_in_quotes}"
            )),
            (Act::Edit, true) => Cue::Close(format!(
                "The correction did not come back as a success, but with: {words_in_quotes}"
            )),
            (Act::List | Act::Read, true) => Cue::Close(format!(
                "It stops and proposes no correction, because {} came back with: {words_in_quotes}",
                act.tool()
            )),
        }
    }
}

#[async_trait]
impl Conversation for Performance {
    fn add(&mut self, message: &Message<'_>) {
        match message {
            Message::System(_) => {}
            // A continued conversation gets the whole script again.
            Message::Input(_) => *self = Self::default(),
            Message::Reply(reply) => {
                let last = reply.calls.last().and_then(|call| Some((Act::of(&call.name)?, call.id.clone())));
                self.last = last.or(self.last.take());
            }
            Message::LeftOut(_) => {}
            Message::Result { call, content, is_error } => {
                self.results.insert((*call).clone(), (content.to_string(), *is_error));
            }
        }
    }

    async fn ask(&mut self, offers: &[Offer]) -> Result<Answer, ModelError> {
        let (text, call) = match self.next(offers) {
            Cue::Call(act) => (act.announcement(), Some(act)),
            Cue::Close(words) => (format!("This is a script, not a model. {words}"), None),
        };
        let calls = call.map(|act| AnsweredCall {
            wire_id: None,
            name: act.tool().to_owned(),
            arguments: Some(act.arguments()),
            opaque: Opaque::default(),
        });
        Ok(Answer {
            text: Some(text),
            calls: calls.into_iter().collect(),
            finish: Finish::Stop,
            // A script reads and writes no tokens: zero is the true number.
            usage: Some(Usage::default()),
            opaque: Opaque::default(),
        })
    }
}

/// A result in its own words, on one line and cut.
fn quoted(words: &str) -> String {
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("\"{} […]\"", &line[..end]),
        None => format!("\"{line}\""),
    }
}

#[cfg(test)]
mod tests;
