//! P1 to P10: the gates, their order and their zones.

use countersign_core::*;
use proptest::prelude::*;

use crate::world::{remote, subject, tool};

fn gates(allowance: Allowance, zone: Zone, enforcement: Enforcement) -> AgentGates {
    AgentGates { allowance, zone, enforcement }
}

fn word(spec: &ToolSpec, switches: &Switches, agent: &AgentGates, principal: Option<&Principal>) -> Word {
    Policy { tools: &vec![spec.clone()], switches, agent, principal }.decide(spec.name.as_str()).word
}

/// A tool that every gate denies, with one gate after the other opened.
#[test]
fn rule_p1_to_p5_vector_tg01_vector_tg02_vector_tg03_the_first_closed_gate_is_the_reason() {
    let spec = ToolSpec {
        requires_admin: true,
        data_class: DataClass::SecretAdjacent,
        ..tool("adm", "g1", Effect::Read)
    };
    let (admin, user) = (Principal::admin(subject("root")), Principal::user(subject("alice")));
    let off = Switches::default().with_tool("adm", Switch::Off);
    let on = Switches::default();
    let nothing = Allowance::Only(std::collections::BTreeSet::new());
    let outside = gates(nothing, Zone::ExternalGlobal, Enforcement::Enforce);
    let inside = gates(Allowance::Everything, Zone::ExternalGlobal, Enforcement::Enforce);
    let local = gates(Allowance::Everything, Zone::Local, Enforcement::Enforce);
    let none = Policy { tools: &Vec::new(), switches: &off, agent: &outside, principal: None }.decide("adm");
    assert_eq!((none.word, none.data_class), (Word::Deny(Gate::NotRegistered), DataClass::SecretAdjacent));
    assert_eq!(word(&spec, &off, &outside, Some(&user)), Word::Deny(Gate::ToolDisabled), "T-G01");
    assert_eq!(word(&spec, &on, &outside, Some(&user)), Word::Deny(Gate::RequiresAdmin));
    assert_eq!(
        word(&spec, &on, &outside, None),
        Word::Deny(Gate::RequiresAdmin),
        "T-G02: nobody is not an admin"
    );
    assert_eq!(word(&spec, &on, &outside, Some(&admin)), Word::Deny(Gate::ConfigurationGroup), "T-G03");
    assert_eq!(word(&spec, &on, &inside, Some(&admin)), Word::Deny(Gate::TrustZone));
    assert_eq!(word(&spec, &on, &local, Some(&admin)), Word::Allow);
    assert!(Gate::NotRegistered < Gate::ToolDisabled && Gate::ToolDisabled < Gate::RequiresAdmin);
    assert!(Gate::RequiresAdmin < Gate::ConfigurationGroup && Gate::ConfigurationGroup < Gate::TrustZone);
}

#[test]
fn rule_p2_a_tool_that_is_off_by_any_switch_is_denied_before_anything_else_is_asked() {
    let spec = tool("page_drop", "g1", Effect::Write);
    let local = gates(Allowance::Everything, Zone::Local, Enforcement::Enforce);
    let on = Switches::default().with_tool("page_drop", Switch::On);
    for off in [
        Switches::default().with_tool("page_drop", Switch::Off),
        Switches::default().with_tool("page_drop", Switch::Unreadable),
        on.clone().with_group("g1", Switch::Off),
        on.clone().with_group("g1", Switch::Unreadable),
        on.clone().with_tool("page_drop", Switch::On),
    ] {
        assert_eq!(word(&spec, &off, &local, None), Word::Deny(Gate::ToolDisabled), "{off:?}");
    }
    assert_eq!(word(&spec, &on, &local, None), Word::Allow);
    let off_by_default = ToolSpec { enabled_by_default: false, ..spec };
    assert_eq!(word(&off_by_default, &Switches::default(), &local, None), Word::Deny(Gate::ToolDisabled));
    assert_eq!(word(&off_by_default, &on, &local, None), Word::Allow);
}

#[test]
fn rule_p3_an_approver_or_a_service_is_not_an_admin() {
    let spec = ToolSpec { requires_admin: true, ..tool("adm", "g1", Effect::Read) };
    let local = gates(Allowance::Everything, Zone::Local, Enforcement::Enforce);
    let service = Principal::service(subject("robo"), Scope::ALL.into_iter().collect());
    for principal in [Principal::approver(subject("bob")), service, Principal::user(subject("alice"))] {
        assert_eq!(
            word(&spec, &Switches::default(), &local, Some(&principal)),
            Word::Deny(Gate::RequiresAdmin)
        );
    }
}

#[test]
fn rule_p6_vector_tg04_every_class_against_every_zone() {
    // The last class that each zone may be shown, by its place in the order.
    for (zone, last) in
        [(Zone::Local, 5), (Zone::PrivateHosted, 4), (Zone::ExternalEu, 3), (Zone::ExternalGlobal, 1)]
    {
        for (place, class) in DataClass::ALL.into_iter().enumerate() {
            let spec = ToolSpec { data_class: class, ..tool("t", "g1", Effect::Read) };
            let agent = gates(Allowance::Everything, zone, Enforcement::Enforce);
            let wanted = if place <= last { Word::Allow } else { Word::Deny(Gate::TrustZone) };
            assert_eq!(word(&spec, &Switches::default(), &agent, None), wanted, "{class:?} in {zone:?}");
        }
    }
}

#[test]
fn rule_p6_vector_tg12_what_is_undeclared_is_the_strictest() {
    for word in [None, Some(""), Some("public"), Some("PUBLIC_CONTENT"), Some(" public_content")] {
        assert_eq!(DataClass::from_word(word), DataClass::SecretAdjacent, "{word:?}");
        assert_eq!(Zone::from_word(word), Zone::ExternalGlobal, "{word:?}");
    }
    assert!(DataClass::ALL.iter().all(|class| DataClass::from_word(Some(class.as_str())) == *class));
    assert!(Zone::ALL.iter().all(|zone| Zone::from_word(Some(zone.as_str())) == *zone));
}

#[test]
fn rule_p7_vector_tg09_vector_tg10_the_worst_zone_of_the_chain_counts() {
    use Zone::{ExternalEu, ExternalGlobal, Local, PrivateHosted};
    assert_eq!(Zone::of_chain([Some(Local), Some(ExternalGlobal)]).ceiling(), DataClass::EditorContent);
    assert_eq!(Zone::of_chain([Some(ExternalGlobal), Some(Local)]), ExternalGlobal);
    assert_eq!(Zone::of_chain([Some(Local), None, Some(Local)]), ExternalGlobal, "what does not resolve");
    assert_eq!(Zone::of_chain([Some(PrivateHosted), Some(ExternalEu), Some(Local)]), ExternalEu);
    // T-G11 asks about a fallback's own fallbacks. A chain here is one list, and all of it counts (P7).
    assert_eq!(Zone::of_chain([Some(Local), Some(Local), Some(ExternalEu)]), ExternalEu);
}

#[test]
fn rule_p8_vector_tg05_vector_tg06_observing_helps_local_tools_at_p5_only() {
    let local = ToolSpec { data_class: DataClass::SystemDiagnostics, ..tool("t", "g1", Effect::Read) };
    let far = ToolSpec {
        data_class: DataClass::SystemDiagnostics,
        ..remote("t", Effect::Read, RemoteApproval::NotRequired)
    };
    let observing = gates(Allowance::Everything, Zone::ExternalEu, Enforcement::Observe);
    let on = Switches::default();
    assert_eq!(word(&local, &on, &observing, None), Word::ObservedTrustZone);
    assert_eq!(word(&far, &on, &observing, None), Word::Deny(Gate::TrustZone));
    for origin in [Origin::Builtin, Origin::Http, Origin::Command, Origin::Library] {
        assert_eq!(
            word(&ToolSpec { origin, ..local.clone() }, &on, &observing, None),
            Word::ObservedTrustZone
        );
    }
    assert!(Word::ObservedTrustZone.allows());
    assert_eq!(Word::ObservedTrustZone.gate(), Some(Gate::TrustZone));
    // The other gates are never observed.
    let nothing =
        gates(Allowance::Only(std::collections::BTreeSet::new()), Zone::ExternalEu, Enforcement::Observe);
    assert_eq!(word(&local, &on, &nothing, None), Word::Deny(Gate::ConfigurationGroup));
    let off = Switches::default().with_group("g1", Switch::Off);
    assert_eq!(word(&local, &off, &observing, None), Word::Deny(Gate::ToolDisabled));
}

#[test]
fn rule_p8_vector_tg07_vector_tg08_only_the_word_observes() {
    for setting in [Some("observe"), Some(" OBSERVE "), Some("Observe\n")] {
        assert_eq!(Enforcement::from_setting(setting), Enforcement::Observe, "{setting:?}");
    }
    for setting in [
        None,
        Some(""),
        Some("observ"),
        Some("observed"),
        Some("off"),
        Some("observe enforce"),
        Some("оbserve"),
    ] {
        assert_eq!(Enforcement::from_setting(setting), Enforcement::Enforce, "{setting:?}");
    }
}

#[test]
fn rule_p9_order_and_duplicates_are_kept_and_explain_says_one_verdict_each() {
    let tools =
        vec![tool("a", "g1", Effect::Read), tool("b", "g2", Effect::Read), tool("c", "g1", Effect::Read)];
    let agent = gates(Allowance::Everything, Zone::Local, Enforcement::Enforce);
    let switches = Switches::default().with_tool("b", Switch::Off);
    let policy = Policy { tools: &tools, switches: &switches, agent: &agent, principal: None };
    let request = ToolRequest::Only(["c", "b", "a", "ghost", "c"].map(str::to_owned).to_vec());
    let offered: Vec<_> = policy.offerable(&request).iter().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(offered, ["c", "a", "c"]);
    let explained = policy.explain(&request);
    assert_eq!(
        explained.iter().map(|verdict| verdict.tool.as_str()).collect::<Vec<_>>(),
        ["c", "b", "a", "ghost", "c"]
    );
    assert_eq!(explained[1].word, Word::Deny(Gate::ToolDisabled));
    assert_eq!(explained[3].word, Word::Deny(Gate::NotRegistered));
    assert!(explained.iter().all(|verdict| *verdict == policy.decide(&verdict.tool)));
    assert_eq!(policy.candidates(&ToolRequest::AllEnabled), ["a", "c"], "what is off is no candidate");
}

/// A small world for P10: three tools, their rows, and who asks.
#[derive(Clone, Debug)]
struct Setting {
    tool_rows: Vec<Option<Switch>>,
    group_rows: Vec<Option<Switch>>,
    groups: Option<Vec<usize>>,
    skills: Vec<Option<Vec<usize>>>,
    admins_only: Vec<bool>,
    classes: Vec<usize>,
    zones: Vec<Option<Zone>>,
    observe: bool,
    admin: bool,
}

fn row() -> impl Strategy<Value = Option<Switch>> {
    prop_oneof![Just(None), Just(Some(Switch::On)), Just(Some(Switch::Off)), Just(Some(Switch::Unreadable))]
}

fn some_of_three() -> impl Strategy<Value = Vec<usize>> {
    prop::sample::subsequence(vec![0_usize, 1, 2], 0..=3)
}

fn setting() -> impl Strategy<Value = Setting> {
    let rows = || prop::collection::vec(row(), 3);
    let zones = prop::collection::vec(prop::option::of(prop::sample::select(Zone::ALL.to_vec())), 1..3);
    let flags = (prop::collection::vec(any::<bool>(), 3), any::<bool>(), any::<bool>());
    let skills = prop::collection::vec(prop::option::of(some_of_three()), 0..3);
    (
        rows(),
        rows(),
        prop::option::of(some_of_three()),
        skills,
        flags,
        prop::collection::vec(0_usize..6, 3),
        zones,
    )
        .prop_map(
            |(tool_rows, group_rows, groups, skills, (admins_only, observe, admin), classes, zones)| {
                Setting { tool_rows, group_rows, groups, skills, admins_only, classes, zones, observe, admin }
            },
        )
}

impl Setting {
    fn offered(&self) -> Vec<String> {
        let tools: Vec<ToolSpec> = (0..3)
            .map(|index| ToolSpec {
                requires_admin: self.admins_only[index],
                data_class: DataClass::ALL[self.classes[index]],
                ..tool(&format!("t{index}"), &format!("g{index}"), Effect::Read)
            })
            .collect();
        let mut switches = Switches::default();
        for index in 0..3 {
            if let Some(row) = self.tool_rows[index] {
                switches = switches.with_tool(&format!("t{index}"), row);
            }
            if let Some(row) = self.group_rows[index] {
                switches = switches.with_group(&format!("g{index}"), row);
            }
        }
        let names = |list: &Vec<usize>| list.iter().map(|index| format!("t{index}")).collect();
        let groups = match &self.groups {
            None => GroupSetting::Unrestricted,
            Some(list) => GroupSetting::Only(
                list.iter().map(|index| GroupName::parse(&format!("g{index}")).unwrap()).collect(),
            ),
        };
        let opinion = |skill: &Option<Vec<usize>>| match skill {
            None => SkillOpinion::None,
            Some(list) => SkillOpinion::Only(names(list)),
        };
        let skills: Vec<_> = self.skills.iter().map(opinion).collect();
        let agent = AgentGates {
            allowance: Allowance::of(&groups, &skills, tools.iter()),
            zone: Zone::of_chain(self.zones.iter().copied()),
            enforcement: if self.observe { Enforcement::Observe } else { Enforcement::Enforce },
        };
        let principal = self.admin.then(|| Principal::admin(subject("root")));
        let policy =
            Policy { tools: &tools, switches: &switches, agent: &agent, principal: principal.as_ref() };
        let all = ToolRequest::Only(vec!["t0".into(), "t1".into(), "t2".into()]);
        policy.offerable(&all).iter().map(|name| name.as_str().to_owned()).collect()
    }

    /// The same with one more denial of the given kind.
    fn stricter(&self, kind: usize, index: usize) -> Self {
        let mut stricter = self.clone();
        match kind {
            0 => stricter.tool_rows[index] = Some(Switch::Off),
            1 => stricter.tool_rows[index] = Some(Switch::Unreadable),
            2 => stricter.group_rows[index] = Some(Switch::Off),
            3 => stricter.group_rows[index] = Some(Switch::Unreadable),
            4 => {
                stricter.groups =
                    Some(self.groups.iter().flatten().copied().filter(|group| *group != index).collect());
            }
            5 => stricter.groups = Some(Vec::new()),
            6 if self.skills.iter().all(Option::is_none) => stricter.skills.push(Some(vec![index])),
            // A skill that is missing or unreadable is an opinion of nothing: it joins the union.
            6 => stricter.skills.push(Some(Vec::new())),
            7 => stricter.admins_only[index] = true,
            8 => stricter.admin = false,
            9 => stricter.classes[index] = 5,
            10 => stricter.zones.push(None),
            11 => stricter.observe = false,
            // An "on" that goes missing leaves the default, which is on here: nothing is won by it.
            _ => stricter.tool_rows[index] = stricter.tool_rows[index].filter(|row| *row != Switch::On),
        }
        stricter
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rule_p10_one_more_denial_never_enlarges_the_set(setting in setting(), kind in 0_usize..13, index in 0_usize..3) {
        let before = setting.offered();
        let after = setting.stricter(kind, index).offered();
        prop_assert!(after.iter().all(|name| before.contains(name)), "{before:?} became {after:?}");
    }
}
