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
    pub asked: String,
    /// Whether the requirement is met; `None` for a row that is only for comparison.
    pub met: Option<bool>,
}

impl Row {
    /// A row with the ratio between a time and a floor (seconds); `most` is the maximum ratio.
    pub fn times(what: String, took: f64, beside: &str, floor: f64, most: f64) -> Self {
        Self {
            what,
            found: format!("{took:.2} s, {:.2} times", took / floor),
            beside: format!("{beside} {floor:.2} s"),
            asked: format!("{most} times"),
            met: Some(took <= floor * most),
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
            asked,
            met,
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
        most: u32,
    ) -> anyhow::Result<()> {
        self.memory(
            "peak memory of the controller".to_owned(),
            controller.peak_memory_kib()?,
            beside,
            most,
        )
    }

    /// Adds a row with an amount of memory; `most` is the maximum (MiB).
    pub fn memory(
        &mut self,
        what: String,
        kib: u64,
        beside: String,
        most: u32,
    ) -> anyhow::Result<()> {
        let kib = u32::try_from(kib)?;
        self.row(&Row {
            what,
            found: format!("{:.1} MiB", f64::from(kib) / 1024.0),
            beside,
            asked: format!("{most} MiB"),
            met: Some(kib <= most * 1024),
        });
        Ok(())
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
