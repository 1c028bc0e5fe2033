//! Pseudo-random numbers, the same for the same seed (SplitMix64, Steele and others 2014).

use super::plan::NAMESPACES;

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The source of a history. Both numbers are mixed first: otherwise neighbouring sources would
    /// give the same numbers, shifted by a few steps.
    pub fn of(seed: u64, history: u64) -> Self {
        Self(Self(seed).number() ^ Self(!history).number())
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }

    /// True once in `times` times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap_or_default()]
    }

    /// Some namespaces, at least one.
    pub(crate) fn area(&mut self) -> u8 {
        u8::try_from(1 + self.below((1 << NAMESPACES) - 1)).unwrap_or(1)
    }
}
