//! G1 to G10: groups, switches, agents, skills and requests.

use countersign_core::*;

use crate::world::{tool, tools};

fn names(list: &[&str]) -> ToolRequest {
    ToolRequest::Only(list.iter().map(|name| (*name).to_owned()).collect())
}

fn opinion(list: &[&str]) -> SkillOpinion {
    SkillOpinion::Only(list.iter().map(|name| (*name).to_owned()).collect())
}

fn groups(list: &[&str]) -> GroupSetting {
    GroupSetting::from_list(list.iter().map(|name| GroupName::parse(name).unwrap()))
}

/// R1 in g1, R2 in g2.
fn two() -> Vec<ToolSpec> {
    vec![tool("r1", "g1", Effect::Read), tool("r2", "g2", Effect::Read)]
}

fn offer(
    tools: &Vec<ToolSpec>,
    switches: &Switches,
    groups: &GroupSetting,
    skills: &[SkillOpinion],
    request: &ToolRequest,
) -> Vec<String> {
    let agent = AgentGates {
        allowance: Allowance::of(groups, skills, tools.iter()),
        zone: Zone::Local,
        enforcement: Enforcement::Enforce,
    };
    let offered = Policy { tools, switches, agent: &agent, principal: None }.offerable(request);
    offered.iter().map(|name| name.as_str().to_owned()).collect()
}

fn reason(tools: &Vec<ToolSpec>, switches: &Switches, groups: &GroupSetting, name: &str) -> Word {
    let agent = AgentGates {
        allowance: Allowance::of(groups, &[], tools.iter()),
        zone: Zone::Local,
        enforcement: Enforcement::Enforce,
    };
    Policy { tools, switches, agent: &agent, principal: None }.decide(name).word
}

/// Group row, tool row, default, and what comes of it.
#[test]
fn rule_g4_the_whole_truth_table() {
    use Switch::{Off, On, Unreadable};
    let table = [
        (None, None, true, true),
        (None, None, false, false),
        (None, Some(On), false, true),
        (None, Some(On), true, true),
        (None, Some(Off), true, false),
        (None, Some(Off), false, false),
        (Some(On), None, true, true),
        (Some(On), None, false, false),
        (Some(On), Some(On), false, true),
        (Some(On), Some(Off), true, false),
        (Some(On), Some(Off), false, false),
        (Some(Off), None, true, false),
        (Some(Off), Some(On), true, false),
        (Some(Off), Some(On), false, false),
        (Some(Off), Some(Off), true, false),
        (Some(Unreadable), Some(On), true, false),
        (Some(On), Some(Unreadable), true, false),
        (None, Some(Unreadable), true, false),
        (Some(Unreadable), None, true, false),
    ];
    for (group_row, tool_row, default, effective) in table {
        let mut switches = Switches::default();
        if let Some(row) = group_row {
            switches = switches.with_group("g1", row);
        }
        if let Some(row) = tool_row {
            switches = switches.with_tool("t", row);
        }
        let spec = ToolSpec { enabled_by_default: default, ..tool("t", "g1", Effect::Read) };
        let wanted = EnableState {
            effective,
            tool: tool_row.map_or(default, |row| row == On),
            group: group_row.is_none_or(|row| row == On),
            default,
            overridden: tool_row.is_some(),
        };
        assert_eq!(
            switches.state(&spec),
            wanted,
            "group {group_row:?}, tool {tool_row:?}, default {default}"
        );
    }
}

#[test]
fn vector_tc01_vector_tc02_vector_tc03_a_row_replaces_the_default() {
    let on = tool("r1", "g1", Effect::Read);
    let off = ToolSpec { enabled_by_default: false, ..on.clone() };
    assert!(Switches::default().state(&on).effective);
    assert!(!Switches::default().state(&off).effective);
    assert!(Switches::default().with_tool("r1", Switch::On).state(&off).effective);
}

#[test]
fn vector_tc04_a_tools_switch_never_opens_its_group_again() {
    let switches = Switches::default().with_group("g1", Switch::Off).with_tool("r1", Switch::On);
    let state = switches.state(&tool("r1", "g1", Effect::Read));
    assert_eq!((state.effective, state.tool, state.group, state.overridden), (false, true, false, true));
}

#[test]
fn vector_tc05_rule_g2_a_closed_group_covers_tools_that_come_later() {
    let switches = Switches::default().with_group("g2", Switch::Off);
    let mut tools = vec![tool("r1", "g1", Effect::Read)];
    assert_eq!(offer(&tools, &switches, &groups(&[]), &[], &ToolRequest::AllEnabled), ["r1"]);
    tools.push(tool("late", "g2", Effect::Read));
    assert_eq!(offer(&tools, &switches, &groups(&[]), &[], &ToolRequest::AllEnabled), ["r1"]);
    assert_eq!(reason(&tools, &switches, &groups(&[]), "late"), Word::Deny(Gate::ToolDisabled));
}

#[test]
fn vector_tc06_vector_tc07_rule_g2_rows_of_vanished_names_are_inert_and_live_again() {
    let switches = Switches::default().with_group("gone", Switch::Off).with_tool("old", Switch::Off);
    let mut tools = two();
    assert_eq!(offer(&tools, &switches, &groups(&[]), &[], &ToolRequest::AllEnabled), ["r1", "r2"]);
    assert_eq!(reason(&tools, &switches, &groups(&[]), "old"), Word::Deny(Gate::NotRegistered));
    tools.push(tool("old", "g1", Effect::Read));
    tools.push(tool("other", "gone", Effect::Read));
    assert_eq!(offer(&tools, &switches, &groups(&[]), &[], &ToolRequest::AllEnabled), ["r1", "r2"]);
    let (tool_rows, group_rows) = switches.names();
    assert_eq!((tool_rows.collect::<Vec<_>>(), group_rows.collect::<Vec<_>>()), (vec!["old"], vec!["gone"]));
}

#[test]
fn vector_tc08_an_unknown_group_restricts_nothing() {
    for default in [true, false] {
        let spec = ToolSpec { enabled_by_default: default, ..tool("t", "never.seen", Effect::Read) };
        let state = Switches::default().state(&spec);
        assert_eq!((state.group, state.effective), (true, default));
    }
}

#[test]
fn vector_tc10_vector_tc11_rule_g5_an_agents_groups_restrict() {
    let (tools, open) = (two(), Switches::default());
    let only = groups(&["g1"]);
    assert_eq!(offer(&tools, &open, &only, &[], &ToolRequest::AllEnabled), ["r1"]);
    assert_eq!(reason(&tools, &open, &only, "r2"), Word::Deny(Gate::ConfigurationGroup));
    let off = Switches::default().with_tool("r1", Switch::Off);
    assert_eq!(offer(&tools, &off, &only, &[], &names(&["r1"])), [""; 0]);
    assert_eq!(reason(&tools, &off, &only, "r1"), Word::Deny(Gate::ToolDisabled));
}

#[test]
fn vector_tc12_rule_g5_groups_nobody_has_allow_nothing() {
    assert_eq!(
        offer(&two(), &Switches::default(), &groups(&["ghost"]), &[], &ToolRequest::AllEnabled),
        [""; 0]
    );
    assert_eq!(groups(&[]), GroupSetting::Unrestricted);
}

/// Skills, groups, and what is offered. T-C17 (a skill that is switched off) belongs to whoever reads skills;
/// T-C18 says that a skill whose prose was dropped counts, so here it is one like any other.
#[test]
fn rule_g6_rule_g7_vector_tc13_to_tc18_skills_restrict_and_never_grant() {
    type Row<'a> = (&'a str, &'a [SkillOpinion], &'a [&'a str], &'a [&'a str]);
    let table: [Row<'_>; 11] = [
        ("C13 no skill", &[], &[], &["r1", "r2"]),
        ("C13 no opinion", &[SkillOpinion::None], &[], &["r1", "r2"]),
        ("C14 an opinion of nothing", &[opinion(&[])], &[], &[]),
        ("C15 nothing and r1", &[opinion(&[]), opinion(&["r1"])], &[], &["r1"]),
        ("C15 the other way round", &[opinion(&["r1"]), opinion(&[])], &[], &["r1"]),
        ("C16 skills and groups", &[opinion(&["r1", "r2"])], &["g1"], &["r1"]),
        ("C16 the silent do not widen", &[SkillOpinion::None, opinion(&["r2"])], &[], &["r2"]),
        ("C18 a union", &[opinion(&["r1"]), opinion(&["r2"])], &[], &["r1", "r2"]),
        ("an empty result is nothing", &[opinion(&["r2"])], &["g1"], &[]),
        ("an unknown name is nothing", &[opinion(&["ghost"])], &[], &[]),
        ("a name in another case is unknown", &[opinion(&["R1"])], &[], &[]),
    ];
    for (what, skills, only, offered) in table {
        assert_eq!(
            offer(&two(), &Switches::default(), &groups(only), skills, &ToolRequest::AllEnabled),
            offered,
            "{what}"
        );
    }
}

#[test]
fn rule_g6_a_skill_never_switches_on_what_is_off() {
    let off = Switches::default().with_tool("r1", Switch::Off);
    assert_eq!(
        offer(&two(), &off, &groups(&[]), &[opinion(&["r1", "r2"])], &ToolRequest::AllEnabled),
        ["r2"]
    );
}

#[test]
fn rule_g7_an_empty_result_is_not_the_absence_of_a_setting() {
    let nothing = Allowance::of(&groups(&["g1"]), &[opinion(&["r2"])], two().iter());
    assert_ne!(nothing, Allowance::Everything);
    assert!(!nothing.allows(&ToolName::parse("r1").unwrap()));
    assert_eq!(Allowance::of(&groups(&[]), &[SkillOpinion::None], two().iter()), Allowance::Everything);
}

#[test]
fn rule_g8_vector_tc19_vector_tc20_null_asks_for_all_and_an_empty_list_for_none() {
    let off = Switches::default().with_tool("r2", Switch::Off);
    assert_eq!(offer(&two(), &off, &groups(&[]), &[], &ToolRequest::AllEnabled), ["r1"]);
    assert_eq!(offer(&two(), &off, &groups(&[]), &[], &names(&[])), [""; 0]);
    for (text, request) in
        [("null", ToolRequest::AllEnabled), ("[]", names(&[])), (r#"["r1"]"#, names(&["r1"]))]
    {
        assert_eq!(serde_json::from_str::<ToolRequest>(text).unwrap(), request);
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
    }
}

#[test]
fn vector_tc21_an_unknown_name_is_dropped_with_its_reason() {
    assert_eq!(offer(&two(), &Switches::default(), &groups(&[]), &[], &names(&["ghost", "r1"])), ["r1"]);
    assert_eq!(reason(&two(), &Switches::default(), &groups(&[]), "ghost"), Word::Deny(Gate::NotRegistered));
}

#[test]
fn rule_g10_a_name_that_looks_alike_is_unknown() {
    for name in ["R1", "r1 ", " r1", "r1.", "r\u{200b}1", "r１", "r1\0", ""] {
        assert_eq!(
            reason(&two(), &Switches::default(), &groups(&[]), name),
            Word::Deny(Gate::NotRegistered),
            "{name:?}"
        );
    }
    // A row for a name that looks alike is a row for another name.
    let switches = Switches::default().with_tool("R1", Switch::Off).with_group("G1", Switch::Off);
    assert_eq!(reason(&two(), &switches, &groups(&[]), "r1"), Word::Allow);
}

#[test]
fn rule_p10_two_rows_of_one_name_deny_whatever_they_say() {
    let spec = tool("r1", "g1", Effect::Read);
    for (first, second) in [(Switch::On, Switch::On), (Switch::On, Switch::Off), (Switch::Off, Switch::On)] {
        let tools = Switches::default().with_tool("r1", first).with_tool("r1", second);
        let groups = Switches::default().with_group("g1", first).with_group("g1", second);
        assert!(!tools.state(&spec).effective && !groups.state(&spec).effective, "{first:?}, {second:?}");
    }
}

#[test]
fn case_c41_a_tools_switch_does_not_open_a_closed_group() {
    let switches = Switches::default().with_group("content", Switch::Off).with_tool("page_get", Switch::On);
    let mut all = tools();
    assert_eq!(offer(&all, &switches, &groups(&[]), &[], &names(&["page_get", "clock_now"])), ["clock_now"]);
    all.push(tool("page_new", "content", Effect::Read));
    assert_eq!(reason(&all, &switches, &groups(&[]), "page_new"), Word::Deny(Gate::ToolDisabled));
    assert_eq!(reason(&all, &switches, &groups(&[]), "weather"), Word::Deny(Gate::NotRegistered));
}

#[test]
fn rule_r7_two_allowances_allow_what_both_allow() {
    let only =
        |list: &[&str]| Allowance::Only(list.iter().map(|name| ToolName::parse(name).unwrap()).collect());
    for (one, other, both) in [
        (Allowance::Everything, Allowance::Everything, Allowance::Everything),
        (Allowance::Everything, only(&["a"]), only(&["a"])),
        (Allowance::Everything, only(&[]), only(&[])),
        (only(&["a", "b"]), only(&["b", "c"]), only(&["b"])),
        (only(&["a"]), only(&["b"]), only(&[])),
    ] {
        assert_eq!(one.clone().and(other.clone()), both);
        assert_eq!(other.and(one), both);
    }
}

#[test]
fn rule_g6_a_stored_skill_without_a_list_has_no_opinion_and_an_empty_list_is_one_of_nothing() {
    for (stored, says) in [
        (r#"{"name":"a"}"#, SkillOpinion::None),
        (r#"{"name":"a","allowed_tools":[]}"#, opinion(&[])),
        (r#"{"name":"a","allowed_tools":["r1"],"prose_left_out":true}"#, opinion(&["r1"])),
    ] {
        let skill: SkillInForce = serde_json::from_str(stored).unwrap();
        assert_eq!(skill.opinion(), says);
        assert_eq!(serde_json::to_string(&skill).unwrap(), stored);
    }
    assert!(serde_json::from_str::<SkillInForce>(r#"{"name":"a","allowed":["r1"]}"#).is_err());
}
