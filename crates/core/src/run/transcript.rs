//! What a model is told: the runs that a run continues, then the run itself, as far as the window holds (L6).
//!
//! Invariant: a conversation is a list of parts, and a part is sent whole or not at all: one message of the
//! input, one turn with the results of all its calls, one answer. What goes, goes from the oldest on. Never
//! left out: the beginning through the first user message, what the newest input asks for, and the newest part.
//! How much is left out stands in the log, so the same log gives the same messages. Not here: any wire.

use std::borrow::Cow;

use crate::event::ContextFitted;
use crate::message::{InputMessage, InputRole, Message, Reply};

use super::{CallState, Run, Stage, Turn};

/// What a message or a call costs besides its text: role, ids, punctuation.
const FRAME_TOKENS: u64 = 16;

/// The conversation of a run, with the runs before it.
#[derive(Clone, Copy, Debug)]
pub struct Transcript<'a> {
    earlier: &'a [Run],
    run: &'a Run,
    /// The parts of `earlier`.
    earlier_parts: usize,
    /// The parts from the first to the first user message, which stay.
    head: usize,
    /// Where the newest input says what is wanted, which stays.
    task: usize,
}

/// Even the shortest request there could be does not fit into the window (L6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// What it is estimated at.
    pub estimated_tokens: u64,
}

/// What is sent or left out as a whole.
#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Input(&'a InputMessage),
    Turn(&'a Run, &'a Turn),
    Answer(&'a Reply),
}

impl Run {
    /// The conversation of this run alone: every call answered once, in order (L3).
    pub fn transcript(&self) -> impl Iterator<Item = Message<'_>> {
        Transcript::new(&[], self).messages_from(0)
    }

    /// How many parts of its conversation are left out of requests, from the oldest on (L6).
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The parts that a run adds to a conversation. Once another run goes on with it, its unfinished turn and
    /// its answer belong to it too.
    fn parts(&self, is_earlier: bool) -> usize {
        let more = usize::from(is_earlier && self.turn.is_some())
            + usize::from(is_earlier && self.answer_to_tell().is_some());
        self.created.input.len() + self.history.len() + more
    }

    fn part(&self, place: usize, is_earlier: bool) -> Option<Part<'_>> {
        if let Some(input) = self.created.input.get(place) {
            return Some(Part::Input(input));
        }
        let place = place - self.created.input.len();
        if let Some(turn) = self.history.get(place) {
            return Some(Part::Turn(self, turn));
        }
        let unfinished = self.turn.as_ref().filter(|_| is_earlier).map(|turn| Part::Turn(self, turn));
        let answer = self.answer_to_tell().filter(|_| is_earlier).map(Part::Answer);
        unfinished.into_iter().chain(answer).nth(place - self.history.len())
    }

    /// The answer it ended with, if it said something.
    fn answer_to_tell(&self) -> Option<&Reply> {
        self.output().and(self.last_reply.as_deref())
    }

    fn result<'a>(&'a self, turn: &Turn, state: CallState<'a>) -> Message<'a> {
        let (content, is_error) = match state.stage {
            Stage::Finished(result) => (Cow::Borrowed(result.content.as_str()), result.is_error()),
            Stage::Running(_) | Stage::Unknown { .. } => {
                (Cow::Borrowed("The outcome of this call is not known."), true)
            }
            // Of an earlier run that ended before it came to this call.
            Stage::Proposed | Stage::Held | Stage::AwaitingInput | Stage::Cleared(_) | Stage::Barred(_) => {
                (Cow::Borrowed("Not run: the task ended before this call."), true)
            }
        };
        let edited = self.pendings.iter().rev().find(|record| {
            record.pending.turn == turn.number
                && record.decided.is_some()
                && !record.pending.editors.is_empty()
        });
        let changed = edited
            .and_then(|record| record.pending.call(&state.call.id))
            .filter(|held| held.original_arguments.is_some())
            .and_then(|held| held.arguments.as_ref());
        let content = match changed {
            Some(arguments) => Cow::Owned(format!(
                "[A person changed the arguments of this call to {}]\n{content}",
                arguments.text()
            )),
            None => content,
        };
        Message::Result { call: &state.call.id, content, is_error }
    }
}

impl<'a> Transcript<'a> {
    /// The conversation of `run`, which continues `earlier`, oldest first.
    pub fn new(earlier: &'a [Run], run: &'a Run) -> Self {
        let earlier_parts = earlier.iter().map(|run| run.parts(true)).sum();
        let is_user = |message: &InputMessage| message.role == InputRole::User;
        let beginning = &earlier.first().unwrap_or(run).created.input;
        let head = beginning.iter().position(is_user).map_or(beginning.len(), |first| first + 1);
        let input = &run.created.input;
        let task = earlier_parts + input.iter().rposition(is_user).unwrap_or(input.len().saturating_sub(1));
        Self { earlier, run, earlier_parts, head, task }
    }

    /// How many parts it has.
    pub fn parts(&self) -> usize {
        self.earlier_parts + self.run.parts(false)
    }

    /// What is sent, from this part on; from part 0 on with the system prompt. Costs nothing for the parts before.
    pub fn messages_from(self, part: usize) -> impl Iterator<Item = Message<'a>> {
        let system = self.run.created.system_prompt.as_deref().filter(|_| part == 0).map(Message::System);
        let parts = (part..self.parts()).filter_map(move |place| Some((place, self.part(place)?)));
        system.into_iter().chain(parts.flat_map(move |(place, part)| part.messages(self.is_left_out(place))))
    }

    /// Whether the conversation has to be made shorter for a request that offers this many bytes of tools.
    /// `None`: it goes out as it is.
    ///
    /// # Errors
    /// [`Exhausted`]: no request may be made.
    pub fn fitted(&self, offered_bytes: u64) -> Result<Option<ContextFitted>, Exhausted> {
        let Some(window_tokens) = self.run.created.limits.window_tokens else { return Ok(None) };
        // What is kept free for the answer.
        let room = window_tokens - window_tokens / 8;
        let system = self.run.created.system_prompt.as_deref().map(Message::System);
        let mut estimated = tokens(offered_bytes).saturating_add(system.as_ref().map_or(0, estimate));
        let mut may_go = Vec::new();
        for place in 0..self.parts() {
            let Some(part) = self.part(place) else { continue };
            let size =
                part.messages(false).fold(0, |sum: u64, message| sum.saturating_add(estimate(&message)));
            estimated = estimated.saturating_add(size);
            if self.place_in_line(place).is_some() {
                may_go.push((place, size));
            }
        }
        // What was left out once stays out: what is sent changes as seldom as it can.
        let before = usize::try_from(self.run.left_out).unwrap_or(usize::MAX).min(may_go.len());
        let mut left_out = 0;
        while left_out < before || (estimated > room && left_out < may_go.len()) {
            estimated = estimated.saturating_sub(may_go[left_out].1);
            left_out += 1;
        }
        if estimated > room {
            return Err(Exhausted { estimated_tokens: estimated });
        }
        Ok((left_out > before).then(|| ContextFitted {
            left_out: left_out as u64,
            kept: (self.parts() - left_out) as u64,
            first_turn: self.first_turn(may_go[left_out - 1].0),
            estimated_tokens: estimated,
            window_tokens,
        }))
    }

    /// The number of the first turn of the run after a part that is left out, if that is one of its turns.
    fn first_turn(&self, last_left_out: usize) -> Option<u32> {
        let first = self.earlier_parts + self.run.created.input.len();
        let turns = (last_left_out + 1).checked_sub(first)?;
        u32::try_from(turns).ok().filter(|turns| *turns > 0).map(|turns| turns + 1)
    }

    fn part(&self, mut place: usize) -> Option<Part<'a>> {
        if place >= self.earlier_parts {
            return self.run.part(place - self.earlier_parts, false);
        }
        for run in self.earlier {
            let parts = run.parts(true);
            if place < parts {
                return run.part(place, true);
            }
            place -= parts;
        }
        None
    }

    /// How many parts go before this one does; `None`: it never goes.
    fn place_in_line(&self, place: usize) -> Option<usize> {
        if place < self.head || place == self.task || place + 1 == self.parts() {
            return None;
        }
        let task_stays_before = place > self.task && self.task >= self.head;
        Some(place - self.head - usize::from(task_stays_before))
    }

    fn is_left_out(&self, place: usize) -> bool {
        self.run.left_out > 0
            && self.place_in_line(place).is_some_and(|in_line| (in_line as u64) < self.run.left_out)
    }
}

impl<'a> Part<'a> {
    fn messages(self, left_out: bool) -> impl Iterator<Item = Message<'a>> {
        let said = match self {
            Self::Input(input) => (!left_out).then_some(Message::Input(input)),
            Self::Turn(_, Turn { reply, .. }) if left_out => Some(Message::LeftOut(reply)),
            Self::Turn(_, Turn { reply, .. }) => Some(Message::Reply(reply)),
            Self::Answer(reply) if left_out => Some(Message::LeftOut(reply)),
            Self::Answer(reply) => Some(Message::Reply(reply)),
        };
        let answered = match self {
            Self::Turn(run, turn) if !left_out => Some((run, turn)),
            Self::Turn(..) | Self::Input(_) | Self::Answer(_) => None,
        };
        let results =
            answered.into_iter().flat_map(|(run, turn)| turn.calls().map(|state| run.result(turn, state)));
        said.into_iter().chain(results)
    }
}

/// Two and a half bytes a token, rounded up.
fn tokens(bytes: u64) -> u64 {
    bytes.saturating_mul(2).div_ceil(5)
}

/// What a message is estimated at: all that a wire could carry of it.
fn estimate(message: &Message<'_>) -> u64 {
    let (bytes, frames) = match message {
        Message::System(text) => (text.len(), 1),
        Message::Input(input) => (input.text.len(), 1),
        Message::Reply(reply) => (bytes_of(reply), 1 + reply.calls.len()),
        Message::LeftOut(_) => (0, 0),
        Message::Result { content, .. } => (content.len(), 1),
    };
    tokens(bytes as u64).saturating_add(FRAME_TOKENS.saturating_mul(frames as u64))
}

fn bytes_of(reply: &Reply) -> usize {
    let opaque = |parts: &crate::message::Opaque| -> usize {
        parts.0.iter().map(|(name, raw)| name.len() + raw.len()).sum()
    };
    let calls: usize = reply
        .calls
        .iter()
        .map(|call| {
            let (id, arguments) = (call.wire_id.as_deref(), call.arguments.as_deref());
            call.name.len() + id.map_or(0, str::len) + arguments.map_or(0, str::len) + opaque(&call.opaque)
        })
        .sum();
    reply.text.as_deref().map_or(0, str::len) + opaque(&reply.opaque) + calls
}
