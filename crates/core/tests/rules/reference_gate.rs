//! The five gates a second time, in plain lines from the text of the rules, and compared with the real ones:
//! over small scopes exhaustively, and over a million random cases.
//!
//! Nothing here asks the code under test for anything but its answer.

use std::collections::BTreeSet;

use countersign_core::*;

use crate::world::{remote, subject, tool};

const TOOLS: [&str; 3] = ["t0", "t1", "t2"];
const GROUPS: [&str; 4] = ["g0", "g1", "g2", "ghost"];

/// A row: none, on, off, unreadable, written twice.
const ROWS: u8 = 5;

#[derive(Clone, Copy, Debug)]
struct PlainTool {
    group: usize,
    row: u8,
    default_on: bool,
    admins_only: bool,
    class: usize,
    remote: bool,
}

/// 0 nobody, 1 user, 2 approver, 3 admin.
type Who = u8;

#[derive(Clone, Debug)]
struct Plain {
    tools: [PlainTool; 3],
    group_rows: [u8; 3],
    /// Bit n: group n is listed. No bit: the setting is empty.
    agent_groups: u8,
    /// For each skill: none, or bits of the tools it lists (bit 3: a name nobody has).
    skills: Vec<Option<u8>>,
    zone: usize,
    observe: bool,
    who: Who,
}

#[derive(Debug, PartialEq)]
enum Answer {
    Yes,
    Observed,
    No(&'static str),
}

/// P1 to P5 in order, with G2 to G7 written out.
fn gate(plain: &Plain, name: usize) -> Answer {
    if name > 2 {
        return Answer::No("not_registered");
    }
    let tool = plain.tools[name];
    let group_on = plain.group_rows[tool.group] == 0 || plain.group_rows[tool.group] == 1;
    let tool_on = if tool.row == 0 { tool.default_on } else { tool.row == 1 };
    if !group_on || !tool_on {
        return Answer::No("tool_disabled");
    }
    if tool.admins_only && plain.who != 3 {
        return Answer::No("requires_admin");
    }
    let in_groups = plain.agent_groups == 0 || plain.agent_groups & (1 << tool.group) != 0;
    let mut some_skill_speaks = false;
    let mut some_skill_lists_it = false;
    for listed in plain.skills.iter().flatten() {
        some_skill_speaks = true;
        if listed & (1 << name) != 0 {
            some_skill_lists_it = true;
        }
    }
    if !in_groups || (some_skill_speaks && !some_skill_lists_it) {
        return Answer::No("configuration_group");
    }
    let ceiling = [5, 4, 3, 1][plain.zone];
    if tool.class <= ceiling {
        return Answer::Yes;
    }
    if plain.observe && !tool.remote { Answer::Observed } else { Answer::No("trust_zone") }
}

/// The same world in the types of the core.
struct Real {
    tools: Vec<ToolSpec>,
    switches: Switches,
    agent: AgentGates,
    principal: Option<Principal>,
}

impl Real {
    fn of(plain: &Plain) -> Self {
        let tools = real_tools(&plain.tools);
        let groups = (0..4).filter(|index| plain.agent_groups & (1 << index) != 0);
        let groups = GroupSetting::from_list(groups.map(|index| GroupName::parse(GROUPS[index]).unwrap()));
        let allowance = Allowance::of(&groups, &real_skills(&plain.skills), tools.iter());
        Self {
            switches: real_switches(&plain.tools.map(|tool| tool.row), &plain.group_rows),
            agent: AgentGates {
                allowance,
                zone: Zone::ALL[plain.zone],
                enforcement: enforcement(plain.observe),
            },
            principal: principal(plain.who),
            tools,
        }
    }

    fn policy(&self) -> Policy<'_> {
        Policy {
            tools: &self.tools,
            switches: &self.switches,
            agent: &self.agent,
            principal: self.principal.as_ref(),
        }
    }
}

fn real_tools(plain: &[PlainTool; 3]) -> Vec<ToolSpec> {
    let spec = |(name, plain): (&str, &PlainTool)| ToolSpec {
        origin: if plain.remote {
            remote(name, Effect::Read, RemoteApproval::Required).origin
        } else {
            Origin::Builtin
        },
        data_class: DataClass::ALL[plain.class],
        enabled_by_default: plain.default_on,
        requires_admin: plain.admins_only,
        ..tool(name, GROUPS[plain.group], Effect::Read)
    };
    TOOLS.into_iter().zip(plain).map(spec).collect()
}

fn real_switches(tool_rows: &[u8; 3], group_rows: &[u8; 3]) -> Switches {
    let words = |row: u8| match row {
        0 => vec![],
        1 => vec![Switch::On],
        2 => vec![Switch::Off],
        3 => vec![Switch::Unreadable],
        _ => vec![Switch::On, Switch::On],
    };
    let mut switches = Switches::default();
    for index in 0..3 {
        for word in words(tool_rows[index]) {
            switches = switches.with_tool(TOOLS[index], word);
        }
        for word in words(group_rows[index]) {
            switches = switches.with_group(GROUPS[index], word);
        }
    }
    switches
}

fn real_skills(skills: &[Option<u8>]) -> Vec<SkillOpinion> {
    let name = |index: usize| TOOLS.get(index).map_or("unheard_of", |name| name).to_owned();
    let opinion = |skill: &Option<u8>| match skill {
        None => SkillOpinion::None,
        Some(bits) => SkillOpinion::Only((0..4).filter(|index| bits & (1 << index) != 0).map(name).collect()),
    };
    skills.iter().map(opinion).collect()
}

fn enforcement(observe: bool) -> Enforcement {
    if observe { Enforcement::Observe } else { Enforcement::Enforce }
}

fn principal(who: Who) -> Option<Principal> {
    match who {
        0 => None,
        1 => Some(Principal::user(subject("alice"))),
        2 => Some(Principal::approver(subject("bob"))),
        _ => Some(Principal::admin(subject("root"))),
    }
}

fn answer(word: Word) -> Answer {
    match word {
        Word::Allow => Answer::Yes,
        Word::ObservedTrustZone => Answer::Observed,
        Word::Deny(gate) => Answer::No(gate.as_str()),
    }
}

const PLAIN_TOOL: PlainTool =
    PlainTool { group: 0, row: 0, default_on: true, admins_only: false, class: 1, remote: false };

fn plain() -> Plain {
    let mut tools = [PLAIN_TOOL; 3];
    tools[1].group = 1;
    tools[2].group = 2;
    Plain { tools, group_rows: [0; 3], agent_groups: 0, skills: Vec::new(), zone: 0, observe: false, who: 1 }
}

fn name(index: usize) -> &'static str {
    TOOLS.get(index).copied().unwrap_or("unheard_of")
}

#[test]
fn rule_p1_to_p5_every_flag_of_one_tool_against_every_other() {
    let groups_settings: [u8; 5] = [0b0000, 0b0001, 0b0110, 0b0011, 0b1000];
    let skills_settings: [&[Option<u8>]; 7] =
        [&[], &[None], &[Some(0)], &[Some(1)], &[Some(0b1110)], &[Some(0), Some(1)], &[None, Some(0b1001)]];
    let mut compared = 0_u32;
    let mut world = plain();
    for agent in 0..groups_settings.len() * skills_settings.len() {
        world.agent_groups = groups_settings[agent % groups_settings.len()];
        world.skills = skills_settings[agent / groups_settings.len()].to_vec();
        for facts in 0..2 * 2 * 2 * 6_usize {
            let tool = &mut world.tools[0];
            (tool.default_on, tool.admins_only, tool.remote) =
                (facts % 2 == 0, facts / 2 % 2 == 0, facts / 4 % 2 == 0);
            tool.class = facts / 8;
            let mut real = Real::of(&world);
            for rows in 0..ROWS * ROWS {
                (world.tools[0].row, world.group_rows[0]) = (rows % ROWS, rows / ROWS);
                real.switches = real_switches(&world.tools.map(|tool| tool.row), &world.group_rows);
                for rest in 0..4 * 4 * 2_u8 {
                    (world.who, world.zone, world.observe) =
                        (rest % 4, usize::from(rest / 4 % 4), rest / 16 == 1);
                    real.principal = principal(world.who);
                    (real.agent.zone, real.agent.enforcement) =
                        (Zone::ALL[world.zone], enforcement(world.observe));
                    let said = real.policy().decide("t0").word;
                    assert_eq!(answer(said), gate(&world, 0), "{world:?}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 35 * 48 * 25 * 32);
}

#[test]
fn rule_g2_to_g4_every_placing_of_three_tools_in_three_groups_with_every_row() {
    let mut world = plain();
    for placing in 0..27 * 8_usize {
        for (index, tool) in world.tools.iter_mut().enumerate() {
            tool.group = [placing % 3, placing / 3 % 3, placing / 9 % 3][index];
            tool.default_on = (placing / 27) & (1 << index) != 0;
        }
        let mut real = Real::of(&world);
        for rows in 0..729_u32 {
            let row = |place: u32| u8::try_from(rows / 3_u32.pow(place) % 3).unwrap();
            for index in 0..3_u32 {
                world.tools[index as usize].row = row(index);
                world.group_rows[index as usize] = row(index + 3);
            }
            real.switches = real_switches(&world.tools.map(|tool| tool.row), &world.group_rows);
            let offered = real.policy().offerable(&ToolRequest::AllEnabled);
            let wanted: Vec<_> =
                (0..3).filter(|index| gate(&world, *index) == Answer::Yes).map(name).collect();
            assert!(offered.iter().map(ToolName::as_str).eq(wanted), "{world:?}: {offered:?}");
        }
    }
}

#[test]
fn rule_g5_to_g7_every_pair_of_skills_with_every_list_of_groups() {
    let mut world = plain();
    let opinions: Vec<Option<u8>> = std::iter::once(None).chain((0..16).map(Some)).collect();
    for placing in 0..27_usize {
        for (index, tool) in world.tools.iter_mut().enumerate() {
            tool.group = [placing % 3, placing / 3 % 3, placing / 9 % 3][index];
        }
        for (first, second) in
            opinions.iter().flat_map(|first| opinions.iter().map(move |second| (first, second)))
        {
            world.skills = vec![*first, *second];
            for agent_groups in 0..16 {
                world.agent_groups = agent_groups;
                let real = Real::of(&world);
                for index in 0..4 {
                    assert_eq!(
                        answer(real.policy().decide(name(index)).word),
                        gate(&world, index),
                        "{world:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn rule_g8_rule_p9_every_request_of_up_to_three_names() {
    let mut world = plain();
    world.tools[1].admins_only = true;
    world.tools[2].class = 5;
    world.zone = 1;
    let mut requests = vec![Vec::new()];
    for length in 0..3_usize {
        let longer = requests
            .iter()
            .filter(|request: &&Vec<usize>| request.len() == length)
            .flat_map(|request| (0..4).map(|next| request.iter().copied().chain([next]).collect::<Vec<_>>()));
        requests.extend(longer.collect::<Vec<_>>());
    }
    assert_eq!(requests.len(), 1 + 4 + 16 + 64);
    for who in 0..4 {
        for row in 0..ROWS {
            (world.who, world.tools[0].row) = (who, row);
            let real = Real::of(&world);
            for request in &requests {
                let asked: Vec<String> = request.iter().map(|index| name(*index).to_owned()).collect();
                let offered = real.policy().offerable(&ToolRequest::Only(asked.clone()));
                let passes = |index: &&usize| matches!(gate(&world, **index), Answer::Yes | Answer::Observed);
                let wanted = request.iter().filter(passes).map(|index| name(*index));
                assert!(offered.iter().map(ToolName::as_str).eq(wanted), "{world:?} {asked:?}: {offered:?}");
                let explained = real.policy().explain(&ToolRequest::Only(asked.clone()));
                assert!(explained.iter().map(|verdict| &verdict.tool).eq(&asked));
                assert!(
                    explained
                        .iter()
                        .zip(request)
                        .all(|(verdict, index)| answer(verdict.word) == gate(&world, *index))
                );
            }
        }
    }
}

/// splitmix64: small, and the same everywhere.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn small(&mut self, bound: u8) -> u8 {
        u8::try_from(self.below(u64::from(bound))).unwrap()
    }

    fn place(&mut self, bound: u8) -> usize {
        usize::from(self.small(bound))
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Mostly on, so that the later gates are reached.
    fn row(&mut self) -> u8 {
        if self.below(3) == 0 { self.small(ROWS) } else { self.small(2) }
    }

    fn tool(&mut self) -> PlainTool {
        PlainTool {
            group: self.place(3),
            row: self.row(),
            default_on: self.below(4) != 0,
            admins_only: self.below(3) == 0,
            class: self.place(6),
            remote: self.coin(),
        }
    }

    fn world(&mut self) -> Plain {
        Plain {
            tools: [self.tool(), self.tool(), self.tool()],
            group_rows: [self.row(), self.row(), self.row()],
            agent_groups: if self.coin() { 0 } else { self.small(16) },
            skills: (0..self.below(4))
                .map(|_| if self.coin() { None } else { Some(self.small(16)) })
                .collect(),
            zone: self.place(4),
            observe: self.coin(),
            who: self.small(4),
        }
    }
}

#[test]
fn rule_p1_to_p9_a_million_random_cases() {
    const SEED: u64 = 0x00c0_ffee;
    let mut chance = Chance(SEED);
    let mut seen = BTreeSet::new();
    for case in 0..250_000 {
        let world = chance.world();
        let real = Real::of(&world);
        let policy = real.policy();
        for index in 0..4 {
            let verdict = policy.decide(name(index));
            let wanted = gate(&world, index);
            assert_eq!(
                answer(verdict.word),
                wanted,
                "seed {SEED:#x}, case {case}: {} in {world:?}",
                name(index)
            );
            seen.insert(format!("{wanted:?}"));
        }
    }
    assert_eq!(seen.len(), 7, "all answers occur: {seen:?}");
}
