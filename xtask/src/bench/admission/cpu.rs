//! Who used the processors: they are shared by clients, API server, etcd and webhook, so this is where the time goes.

use std::collections::BTreeMap;

/// Processor time used so far, in ticks, by the parts of the run and by everything on the machine.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    parts: BTreeMap<&'static str, u64>,
    busy: u64,
    all: u64,
}

/// What was used between two looks, summed over rounds.
#[derive(Clone, Debug, Default)]
pub struct Used {
    parts: BTreeMap<&'static str, u64>,
    others: u64,
    all: u64,
}

impl Cpu {
    /// Looks at these processes; `this` is the program that measures, with the kit's webhooks in it.
    pub fn now<'a>(parts: impl IntoIterator<Item = (&'static str, &'a [u32])>) -> Self {
        let mut cpu = Self::default();
        for (name, ids) in parts {
            cpu.parts.insert(name, ids.iter().filter_map(|id| process_ticks(&id.to_string())).sum());
        }
        cpu.parts.insert("clients and kit", process_ticks("self").unwrap_or_default());
        (cpu.busy, cpu.all) = machine_ticks().unwrap_or_default();
        cpu
    }
}

impl Used {
    /// Adds what was used between two looks.
    pub fn add(&mut self, before: &Cpu, after: &Cpu) {
        let mut ours = 0;
        for (name, ticks) in &after.parts {
            let used = ticks.saturating_sub(before.parts.get(name).copied().unwrap_or_default());
            *self.parts.entry(name).or_default() += used;
            ours += used;
        }
        self.others += (after.busy - before.busy).saturating_sub(ours);
        self.all += after.all - before.all;
    }

    /// Milliseconds of processor time for each of `count` creations, by part, and how much of the machine was taken by
    /// programs that are no part of the run.
    #[allow(clippy::cast_precision_loss)]
    pub fn per_creation(&self, count: usize) -> String {
        // A tick is 10 ms on every Linux that matters here.
        let each = |ticks: u64| ticks as f64 * 10.0 / count.max(1) as f64;
        let parts: Vec<String> = self
            .parts
            .iter()
            .filter(|(_, ticks)| **ticks > 0)
            .map(|(name, ticks)| format!("{name} {:.2}", each(*ticks)))
            .collect();
        let others = self.others as f64 * 100.0 / self.all.max(1) as f64;
        format!("{} ms (others took {others:.0}% of the machine)", parts.join(", "))
    }
}

/// User and system time of a process.
fn process_ticks(id: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before it may hold spaces.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Busy and all time of the machine.
fn machine_ticks() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> = text
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    let all: u64 = fields.iter().sum();
    // Idle, and waiting for a disk.
    Some((all - fields.get(3)? - fields.get(4)?, all))
}
