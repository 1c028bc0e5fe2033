//! The table, and what explains it.

/// Rows, printed at the end.
#[derive(Default)]
pub struct Table {
    rows: Vec<String>,
}

pub struct Row {
    pub what: String,
    /// What was found.
    pub found: String,
    /// What was measured beside it.
    pub beside: String,
    pub asked: String,
    pub met: bool,
}

impl Table {
    /// Adds a line, and shows it at once to whoever waits.
    pub fn row(&mut self, row: &Row) {
        let Row { what, found, beside, asked, met } = row;
        let line = format!("| {what} | {found} | {beside} | {asked} | {} |", if *met { "yes" } else { "no" });
        eprintln!("{line}");
        self.rows.push(line);
    }

    pub fn print(&self) {
        println!("\n| what | found | beside it | asked | met |");
        println!("| --- | --- | --- | --- | --- |");
        for row in &self.rows {
            println!("{row}");
        }
    }
}
