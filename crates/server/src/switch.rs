//! Which switches may be set: those of what is there, and the removal of those of what is not there any more (G10).

use std::collections::BTreeMap;

use countersign::{Catalogue as _, GroupName, Look, Runtime, ToolName};

/// A tool's name, if its switch may be set so. Names are compared byte for byte.
pub(crate) fn tool(runtime: &Runtime, look: &Look, name: &str, enabled: Option<bool>) -> Option<ToolName> {
    let is_there = runtime.parts().tools.find(name).is_some();
    ToolName::parse(name)
        .ok()
        .filter(|name| is_there || (enabled.is_none() && look.switches.tool(name).is_some()))
}

/// A group's name, in the same way.
pub(crate) fn group(runtime: &Runtime, look: &Look, name: &str, enabled: Option<bool>) -> Option<GroupName> {
    GroupName::parse(name).ok().filter(|name| {
        runtime.parts().tools.has_group(name) || (enabled.is_none() && look.switches.group(name).is_some())
    })
}

/// The switches of tools that are not there.
pub(crate) fn orphans<'a>(runtime: &Runtime, look: &'a Look) -> Vec<&'a str> {
    look.switches.names().0.filter(|name| runtime.parts().tools.tool(name).is_none()).collect()
}

/// The groups with their tools, by name.
pub(crate) fn groups(runtime: &Runtime) -> BTreeMap<&str, Vec<&str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for tool in runtime.parts().tools.tools() {
        groups.entry(tool.spec.group.as_str()).or_default().push(tool.spec.name.as_str());
    }
    groups
}
