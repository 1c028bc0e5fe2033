//! The table, and what explains it.

use backup_tests::process::Process;

/// Rows and notes, printed at the end.
#[derive(Default)]
pub struct Table {
    rows: Vec<String>,
    notes: Vec<String>,
}

pub struct Row {
    pub what: String,
    /// What was found.
    pub found: String,
    /// What was measured beside it.
    pub beside: String,
    pub asked: String,
    /// Whether it is reached; a row without stands for comparison only.
    pub met: Option<bool>,
}

impl Row {
    /// How many times as long as a floor it took (seconds), and may take.
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
    /// Adds a line, and shows it at once to whoever waits.
    pub fn row(&mut self, row: &Row) {
        let Row { what, found, beside, asked, met } = row;
        let met = met.map_or("", |met| if met { "yes" } else { "no" });
        let line = format!("| {what} | {found} | {beside} | {asked} | {met} |");
        eprintln!("{line}");
        self.rows.push(line);
    }

    /// Adds a line with the most memory that a controller has used so far, which may be so many MiB.
    pub fn peak_memory(&mut self, controller: &Process, beside: String, most: u32) -> anyhow::Result<()> {
        self.memory("peak memory of the controller".to_owned(), controller.peak_memory_kib()?, beside, most)
    }

    /// Adds a line with an amount of memory, which may be so many MiB.
    pub fn memory(&mut self, what: String, kib: u64, beside: String, most: u32) -> anyhow::Result<()> {
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
