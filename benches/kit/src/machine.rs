//! What something was measured on.

use anyhow::{Context as _, Result};

/// The machine, and from what the programs were built: `BENCH_BUILT_FROM`.
///
/// # Errors
/// When the system does not say.
pub fn machine() -> Result<String> {
    let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("reading {path}"));
    let cpu = read("/proc/cpuinfo")?;
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": an unnamed CPU");
    let model = model.trim_start_matches([' ', '\t', ':']);
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let memory = read("/proc/meminfo")?;
    let kb: u64 = memory.split_whitespace().nth(1).context("no memory")?.parse()?;
    let kernel = read("/proc/sys/kernel/osrelease")?;
    let built = std::env::var("BENCH_BUILT_FROM").unwrap_or_default();
    let gib = kb.div_ceil(1024 * 1024);
    Ok(format!("{model}, {cores} cores, {gib} GiB, Linux {}. {built}", kernel.trim()).trim().to_owned())
}
