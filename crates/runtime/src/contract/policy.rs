//! Switches, principals, keys.

use countersign_core::{GroupName, People, Principal, Standing, Switch, ToolName};

use super::sample::{call_id, run_id, subject};
use super::{Damage, Harness, done};
use crate::store::{Look, SwitchName};

pub async fn rule_g2_rule_g3_only_overrides_are_stored<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let (tool, group) = (done(ToolName::parse("files")), done(GroupName::parse("files")));
    assert_eq!(done(store.look(&[]).await), Look::default());

    // A tool and a group of one name are two things; the names need not belong to anybody.
    done(store.set_switch(&SwitchName::Tool(tool.clone()), Some(false)).await);
    let look = done(store.look(&[]).await);
    assert_eq!((look.switches.tool(&tool), look.switches.group(&group)), (Some(Switch::Off), None));
    done(store.set_switch(&SwitchName::Tool(tool.clone()), Some(true)).await);
    done(store.set_switch(&SwitchName::Group(group.clone()), Some(false)).await);
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

    done(store.set_switch(&SwitchName::Tool(tool), None).await);
    done(store.set_switch(&SwitchName::Group(group.clone()), None).await);
    done(store.set_switch(&SwitchName::Group(group), None).await);
    assert_eq!(done(store.look(&[]).await), Look::default());
}

pub async fn rule_p10_a_switch_that_cannot_be_read_is_unreadable<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let (tool, group) = (done(ToolName::parse("page_drop")), done(GroupName::parse("content")));
    let other = done(ToolName::parse("page_get"));
    for name in
        [SwitchName::Tool(tool.clone()), SwitchName::Group(group.clone()), SwitchName::Tool(other.clone())]
    {
        done(store.set_switch(&name, Some(true)).await);
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
    done(store.set_switch(&SwitchName::Tool(tool.clone()), Some(false)).await);
    assert_eq!(done(store.look(&[]).await).switches.tool(&tool), Some(Switch::Off));
}

pub async fn rule_g9_a_look_sees_the_rights_of_the_moment<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let service = Principal { standing: Standing::Service, ..Principal::user(subject("ci")) };
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
