//! The table of results, and notes about it.

use backup_tests::process::Process;

/// Rows and notes, printed at the end.
#[derive(Default)]
pub struct Table {
    rows: Vec<String>,
    notes: Vec<String>,
}

pub struct Row {
    pub what: String,
    /// The result.
    pub found: String,
    /// The result of the comparison.
    pub beside: String,
    pub target: Target,
}

/// What is asked, and whether it is met.
pub struct Target {
    asked: String,
    /// `None` for a row that is only for comparison.
    met: Option<bool>,
}

impl Target {
    pub fn new(asked: impl Into<String>, is_met: bool) -> Self {
        Self {
            asked: asked.into(),
            met: Some(is_met),
        }
    }

    /// The result may be `most`, which is printed with this unit.
    pub fn at_most(found: f64, most: f64, unit: &str) -> Self {
        Self::new(format!("{most}{unit}"), found <= most)
    }

    /// There may be no such thing.
    pub fn zero(found: usize) -> Self {
        Self::new("none", found == 0)
    }

    pub fn none() -> Self {
        Self {
            asked: String::new(),
            met: None,
        }
    }
}

impl Row {
    /// A row with the ratio between a time and a floor (seconds); `most` is the maximum ratio.
    pub fn times(what: String, took: f64, beside: String, floor: f64, most: f64) -> Self {
        Self {
            what,
            found: format!("{took:.2} s, {:.2} times", took / floor),
            beside,
            target: Target::at_most(took / floor, most, " times"),
        }
    }
}

impl Table {
    /// Adds a row, and prints it to stderr at once.
    pub fn row(&mut self, row: &Row) {
        let Row {
            what,
            found,
            beside,
            target: Target { asked, met },
        } = row;
        let met = met.map_or("", |met| if met { "yes" } else { "no" });
        let line = format!("| {what} | {found} | {beside} | {asked} | {met} |");
        eprintln!("{line}");
        self.rows.push(line);
    }

    /// Adds a row with the peak memory of a controller so far; `most` is the maximum (MiB).
    pub fn peak_memory(
        &mut self,
        controller: &Process,
        beside: String,
        most: f64,
    ) -> anyhow::Result<()> {
        let what = "peak memory of the controller".to_owned();
        self.memory(what, controller.peak_memory_kib()?, beside, most);
        Ok(())
    }

    /// Adds a row with an amount of memory; `most` is the maximum (MiB).
    pub fn memory(&mut self, what: String, kib: u64, beside: String, most: f64) {
        self.row(&Row {
            what,
            found: format!("{:.1} MiB", mib(kib)),
            beside,
            target: Target::at_most(mib(kib), most, " MiB"),
        });
    }

    pub fn note(&mut self, note: String) {
        eprintln!("{note}");
        self.notes.push(note);
    }

    pub fn print(&self) {
        println!("\n| what | found | beside it | asked | met |");
        println!("| --- | --- | --- | --- | --- |");
        for row in &self.rows {
            println!("{row}");
        }
        for note in &self.notes {
            println!("\n{note}");
        }
    }
}

/// An amount of memory in MiB.
#[allow(clippy::cast_precision_loss)]
pub fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
