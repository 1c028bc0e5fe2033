//! A user at a shell: types a line, and sees a transcript.

use std::{
    collections::BTreeMap,
    io::{Cursor, Write},
    rc::Rc,
    sync::{Arc, Mutex},
};

use kubectl_backup::{Size, Terminal};
use tempfile::TempDir;

use crate::fake_api::FakeApi;

/// The time in every transcript.
pub const NOW: &str = "2026-11-03T05:14:12Z";

/// Time limit for the expected output of a watch.
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(1);

/// A home folder with a kubeconfig for a fake API server.
pub struct Person {
    pub home: TempDir,
    vars: BTreeMap<String, String>,
    answer: Option<&'static str>,
    terminal: bool,
    window: Option<Size>,
    server: Option<String>,
}

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Buffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Person {
    /// A user without a kubeconfig.
    pub fn without_cluster() -> Self {
        let home = tempfile::tempdir().unwrap();
        let vars = [("HOME".to_owned(), home.path().display().to_string())].into();
        Self {
            home,
            vars,
            answer: None,
            terminal: false,
            window: None,
            server: None,
        }
    }

    /// A user whose kubeconfig names this server.
    pub fn at(api: &FakeApi) -> Self {
        Self::at_url(&api.url)
    }

    /// A user whose kubeconfig names this URL.
    pub fn at_url(url: &str) -> Self {
        let mut person = Self::without_cluster();
        person.server = Some(url.to_owned());
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
             clusters: [{{name: one, cluster: {{server: \"{url}\"}}}}]\nusers: [{{name: jane, user: {{}}}}]\n\
             contexts: [{{name: here, context: {{cluster: one, user: jane}}}}]\n"
        );
        std::fs::create_dir(person.home.path().join(".kube")).unwrap();
        person.writes(".kube/config", &kubeconfig);
        person
    }

    /// Writes a file in the home folder.
    pub fn writes(&self, path: &str, text: &str) {
        let path = self.home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Sets an environment variable; `~` is the home folder.
    pub fn with_var(mut self, name: &str, value: &str) -> Self {
        let value = value.replace('~', &self.home.path().display().to_string());
        self.vars.insert(name.to_owned(), value);
        self
    }

    /// The user is at a terminal, and gives this answer to questions.
    pub fn at_terminal(mut self, answer: &'static str) -> Self {
        (self.terminal, self.answer) = (true, Some(answer));
        self
    }

    /// The user is at a terminal with a window of this size.
    pub fn in_window(self, columns: usize, rows: usize) -> Self {
        Self {
            window: Some(Size { columns, rows }),
            ..self.at_terminal("")
        }
    }

    /// Types a line after `kubectl backup`. Returns stdout, stderr and exit code. U+00A0 is a space
    /// that does not separate words. Ports and temporary folders are replaced by fixed names.
    pub async fn types(&self, line: &str) -> String {
        let (out, err) = (Buffer::default(), Buffer::default());
        let exit = self.runs(line, &out, &err).await;
        self.seen(line, &out, &err, &format!("exit {exit}"))
    }

    /// Types several lines; an empty line follows the output of each.
    pub async fn types_all(&self, lines: impl IntoIterator<Item = impl AsRef<str>>) -> String {
        let mut all = String::new();
        for line in lines {
            all += &self.types(line.as_ref()).await;
            all += "\n";
        }
        all
    }

    /// Types a line that prints JSON, and parses the output.
    pub async fn reads(&self, line: &str) -> serde_json::Value {
        let (out, err) = (Buffer::default(), Buffer::default());
        assert_eq!(self.runs(line, &out, &err).await, 0, "{}", err.text());
        serde_json::from_str(&out.text()).unwrap()
    }

    /// Runs the program with these words, as a shell's completion does. Returns stdout, stderr and
    /// exit code.
    pub async fn types_words(&self, words: &[&str]) -> String {
        let (out, err) = (Buffer::default(), Buffer::default());
        let exit = self
            .runs_words(words.iter().map(|word| (*word).to_owned()), &out, &err)
            .await;
        self.seen("", &out, &err, &format!("exit {exit}"))
            .split_off("$ kubectl backup\n".len())
    }

    /// Types a line, and stops the command once this text was shown. Fails if it is not shown in
    /// time.
    pub async fn watches(&self, line: &str, until: &str) -> String {
        let (out, err) = (Buffer::default(), Buffer::default());
        let shown = async {
            while !out.text().contains(until) && !err.text().contains(until) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            exit = self.runs(line, &out, &err) => self.seen(line, &out, &err, &format!("exit {exit}")),
            () = shown => self.seen(line, &out, &err, "turned away"),
            () = tokio::time::sleep(PATIENCE) => {
                panic!("{until:?} is not shown within {PATIENCE:?}:\n{}", self.seen(line, &out, &err, "turned away"))
            }
        }
    }

    async fn runs(&self, line: &str, out: &Buffer, err: &Buffer) -> u8 {
        let home = self.home.path().display().to_string();
        let words = line
            .split_ascii_whitespace()
            .map(|word| word.replace('~', &home).replace('\u{a0}', " "));
        self.runs_words(words, out, err).await
    }

    async fn runs_words(
        &self,
        words: impl Iterator<Item = String>,
        out: &Buffer,
        err: &Buffer,
    ) -> u8 {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut terminal = Terminal::piped(
            Box::new(out.clone()),
            Box::new(err.clone()),
            NOW.parse().unwrap(),
        );
        let vars = self.vars.clone();
        terminal.var = Rc::new(move |name| vars.get(name).cloned());
        let window = self.window;
        terminal.size = Box::new(move || window);
        if self.terminal {
            (
                terminal.in_is_terminal,
                terminal.out_is_terminal,
                terminal.err_is_terminal,
            ) = (true, true, true);
            terminal.input = Box::new(Cursor::new(self.answer.unwrap_or_default()));
        }
        let words = std::iter::once("kubectl-backup".to_owned())
            .chain(words)
            .map(Into::into)
            .collect();
        kubectl_backup::run(words, &mut terminal).await.code()
    }

    fn seen(&self, line: &str, out: &Buffer, err: &Buffer, end: &str) -> String {
        let home = self.home.path().display().to_string();
        let mut seen = format!(
            "{}\n{}",
            format!("$ kubectl backup {line}").trim_end(),
            out.text()
        );
        if !err.text().is_empty() {
            seen = seen + "--- stderr\n" + &err.text();
        }
        let seen = format!("{seen}--- {end}\n");
        let seen = seen.replace(&home, "~").replace('\x1b', "␛");
        self.server
            .as_ref()
            .map_or(seen.clone(), |url| seen.replace(url, "https://cluster"))
    }
}
