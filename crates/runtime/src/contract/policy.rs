//! Switches, principals, keys.

use countersign_core::{GroupName, People, Principal, Scope, Switch, Switches, ToolName};

use super::sample::{at, call_id, run_id, subject};
use super::{Damage, Harness, done};
use crate::store::{Look, SwitchName};

pub async fn rule_g2_rule_g3_only_overrides_are_stored<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let (tool, group) = (done(ToolName::parse("files")), done(GroupName::parse("files")));
    assert_eq!(done(store.look(&[]).await), Look::default());

    // A tool and a group of one name are two things; the names need not belong to anybody.
    done(store.set_switch(&SwitchName::Tool(tool.clone()), Some(false), jiff::Timestamp::UNIX_EPOCH).await);
    let look = done(store.look(&[]).await);
    assert_eq!((look.switches.tool(&tool), look.switches.group(&group)), (Some(Switch::Off), None));
    done(store.set_switch(&SwitchName::Tool(tool.clone()), Some(true), jiff::Timestamp::UNIX_EPOCH).await);
    done(store.set_switch(&SwitchName::Group(group.clone()), Some(false), jiff::Timestamp::UNIX_EPOCH).await);
    let harness = {
        drop(store);
        harness.reopened().await
    };
    let store = harness.store();
    let look = done(store.look(&[]).await);
    assert_eq!(
        (look.switches.tool(&tool), look.switches.group(&group)),
        (Some(Switch::On), Some(Switch::Off))
    );

    done(store.set_switch(&SwitchName::Tool(tool), None, jiff::Timestamp::UNIX_EPOCH).await);
    done(store.set_switch(&SwitchName::Group(group.clone()), None, jiff::Timestamp::UNIX_EPOCH).await);
    done(store.set_switch(&SwitchName::Group(group), None, jiff::Timestamp::UNIX_EPOCH).await);
    let (mut tools, mut groups) = {
        let switches = done(store.look(&[]).await).switches;
        let (tools, groups) = switches.names();
        (tools.map(str::to_owned).collect::<Vec<_>>(), groups.map(str::to_owned).collect::<Vec<_>>())
    };
    tools.append(&mut groups);
    assert!(tools.is_empty(), "no override is left");
}

pub async fn rule_a12_when_a_name_was_last_switched_off_outlives_its_switch<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let (tool, group) = (done(ToolName::parse("drop")), done(GroupName::parse("content")));
    done(store.set_switch(&SwitchName::Tool(tool.clone()), Some(false), at(10)).await);
    done(store.set_switch(&SwitchName::Tool(tool.clone()), Some(true), at(20)).await);
    done(store.set_switch(&SwitchName::Tool(tool.clone()), None, at(30)).await);
    done(store.set_switch(&SwitchName::Group(group.clone()), Some(false), at(15)).await);
    done(store.set_switch(&SwitchName::Group(group.clone()), None, at(30)).await);
    // A clock that has gone back forgets nothing.
    done(store.set_switch(&SwitchName::Group(group.clone()), Some(false), at(5)).await);
    let harness = {
        drop(store);
        harness.reopened().await
    };
    let switches = done(harness.store().look(&[]).await).switches;
    let wanted = Switches::default()
        .with_tool_off_at(tool.as_str(), at(10))
        .with_group(group.as_str(), Switch::Off)
        .with_group_off_at(group.as_str(), at(15));
    assert_eq!(switches, wanted);
}

pub async fn rule_p10_a_switch_that_cannot_be_read_is_unreadable<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let (tool, group) = (done(ToolName::parse("page_drop")), done(GroupName::parse("content")));
    let other = done(ToolName::parse("page_get"));
    for name in
        [SwitchName::Tool(tool.clone()), SwitchName::Group(group.clone()), SwitchName::Tool(other.clone())]
    {
        done(store.set_switch(&name, Some(true), jiff::Timestamp::UNIX_EPOCH).await);
    }
    harness.damage(Damage::Switch(SwitchName::Tool(tool.clone()))).await;
    harness.damage(Damage::Switch(SwitchName::Group(group.clone()))).await;
    let switches = done(store.look(&[]).await).switches;
    assert_eq!(
        (switches.tool(&tool), switches.group(&group)),
        (Some(Switch::Unreadable), Some(Switch::Unreadable))
    );
    assert_eq!(switches.tool(&other), Some(Switch::On));
    // Setting it anew mends it.
    done(store.set_switch(&SwitchName::Tool(tool.clone()), Some(false), jiff::Timestamp::UNIX_EPOCH).await);
    assert_eq!(done(store.look(&[]).await).switches.tool(&tool), Some(Switch::Off));
}

pub async fn rule_g9_a_look_sees_the_rights_of_the_moment<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let service =
        Principal::service(subject("ci"), [Scope::RunCreate, Scope::McpManage].into_iter().collect());
    for principal in [Principal::admin(subject("root")), Principal::user(subject("alice")), service.clone()] {
        done(store.put_principal(&principal).await);
    }
    let asked = [subject("root"), subject("ci"), subject("nobody"), subject("ci")];
    let expected = People::from_iter([Principal::admin(subject("root")), service.clone()]);
    assert_eq!(
        done(store.look(&asked).await).people,
        expected,
        "nobody does not resolve, alice was not asked for"
    );

    done(store.put_principal(&Principal::user(subject("root"))).await);
    let expected = People::from_iter([Principal::user(subject("root")), service]);
    drop(store);
    let harness = harness.reopened().await;
    assert_eq!(done(harness.store().look(&asked).await).people, expected);
}

pub async fn rule_r4_an_idempotency_key_is_a_function_of_installation_run_and_call<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let key = store.idempotency_key(&run_id(1), &call_id(1));
    assert!(key.len() >= 32 && key.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{key}");
    assert_ne!(key, store.idempotency_key(&run_id(1), &call_id(2)));
    assert_ne!(key, store.idempotency_key(&run_id(2), &call_id(1)));
    let elsewhere = H::fresh().await;
    assert_ne!(key, elsewhere.store().idempotency_key(&run_id(1), &call_id(1)));
    drop(store);
    let harness = harness.reopened().await;
    assert_eq!(key, harness.store().idempotency_key(&run_id(1), &call_id(1)));
}
