//! The table, and what explains it.

/// Rows and notes, printed at the end.
#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
    notes: Vec<String>,
}

pub struct Row {
    pub what: &'static str,
    /// What the guard reached.
    pub guard: String,
    /// What was measured beside it.
    pub beside: String,
    /// The two compared.
    pub found: String,
    pub asked: String,
    /// Whether it is reached; a row without stands for comparison only.
    pub met: Option<bool>,
}

impl Report {
    /// Adds a line, and shows it at once to whoever waits.
    pub fn row(&mut self, row: Row) {
        eprintln!("          {}", line(&row));
        self.rows.push(row);
    }

    pub fn note(&mut self, note: String) {
        eprintln!("          {note}");
        self.notes.push(note);
    }

    pub fn print(&self) {
        println!("\n| what | guard | beside it | found | asked | met |");
        println!("| --- | --- | --- | --- | --- | --- |");
        for row in &self.rows {
            println!("{}", line(row));
        }
        println!();
        for note in &self.notes {
            println!("- {note}");
        }
    }
}

fn line(row: &Row) -> String {
    let met = match row.met {
        Some(true) => "yes",
        Some(false) => "no",
        None => "",
    };
    format!("| {} | {} | {} | {} | {} | {met} |", row.what, row.guard, row.beside, row.found, row.asked)
}
