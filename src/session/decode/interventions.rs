//! Interventions: what a call changes of a model's numbers on their way to the logits.

use crate::arch::Layer;
use crate::error::{Error, Result};
use crate::graph::InterventionSite;
use crate::kernels::{InterventionEntry, InterventionKind, InterventionLayout, MOST_INTERVENTIONS};
use crate::lower::{ANY_INTERVENTIONS, InferenceOptions};
use crate::session::model::Model;
use std::num::NonZeroU32;
use std::ops::Range;
use std::rc::{Rc, Weak};

/// Where numbers are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The residual stream after this many layers: 0 is the embedding. After the last layer it is before the final
    /// norm.
    Residual(usize),
    /// What a layer's attention adds to the residual stream.
    Attention(usize),
    /// What a layer's feed-forward block adds to it.
    Mlp(usize),
    /// What a head leaves for the output product of its layer's attention.
    Head { layer: usize, head: usize },
}

/// How numbers are changed. Vectors have the width of the place.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Multiplied; 0 turns off whatever is there.
    Scale(f32),
    /// The vector is added, times a factor.
    Add { vector: Vec<f32>, strength: f32 },
    /// The component along the vector is taken away, times a factor: all of it with 1. The vector need not have length
    /// 1.
    Project { vector: Vec<f32>, strength: f32 },
    /// Replaced: by one vector, or by one for each position.
    Set(Vec<f32>),
}

/// A change at a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Intervention {
    pub place: Place,
    pub change: Change,
    /// Positions of the text; all where there is none.
    pub positions: Vec<Range<usize>>,
}

/// The interventions of a call, as the kernels read them. A model knows them while they are held.
#[derive(Clone, Debug)]
pub struct Interventions {
    id: NonZeroU32,
    numbers: Rc<Numbers>,
}

#[derive(Debug, PartialEq)]
pub(in crate::session) struct Numbers {
    /// Sites and entries.
    pub entries: Vec<u32>,
    pub vectors: Vec<f32>,
    /// The byte at which they begin.
    pub vectors_at: u64,
}

/// Two calls that ask for the same may share what a cache holds. Each submit of a call compares: mostly a call with itself.
impl PartialEq for Interventions {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.numbers, &other.numbers) || self.numbers == other.numbers
    }
}

/// The interventions that are held, by their numbers.
#[derive(Debug, Default)]
pub(in crate::session) struct KnownInterventions {
    last: Option<NonZeroU32>,
    held: Vec<(NonZeroU32, Weak<Numbers>)>,
}

impl Interventions {
    /// The number under which the model knows them.
    pub(in crate::session) fn id(&self) -> NonZeroU32 {
        self.id
    }

    /// Options of a call that they change.
    pub fn over(&self, options: InferenceOptions) -> InferenceOptions {
        InferenceOptions { interventions: Some(self.id()), ..options }
    }

    pub(in crate::session) fn numbers(&self) -> &Numbers {
        &self.numbers
    }
}

impl KnownInterventions {
    fn hold(&mut self, numbers: Numbers) -> Interventions {
        self.held.retain(|(_, held)| held.strong_count() > 0);
        let before = self.last.unwrap_or(ANY_INTERVENTIONS);
        let id = before.checked_add(1).unwrap_or(ANY_INTERVENTIONS.saturating_add(1));
        self.last = Some(id);
        let numbers = Rc::new(numbers);
        self.held.push((id, Rc::downgrade(&numbers)));
        Interventions { id, numbers }
    }

    pub fn find(&self, id: NonZeroU32) -> Result<Interventions> {
        let found = self.held.iter().find(|(known, _)| *known == id);
        let held = found.and_then(|(_, held)| held.upgrade());
        let held = held.map(|numbers| Interventions { id, numbers });
        held.ok_or_else(|| Error::internal("interventions have ended before their call"))
    }
}

/// What is written for the kernels.
struct Writer {
    layout: InterventionLayout,
    /// By site its entries.
    sites: Vec<Vec<InterventionEntry>>,
    vectors: Vec<f32>,
    hidden: usize,
}

impl Writer {
    fn push(
        &mut self,
        site: InterventionSite,
        columns: Range<usize>,
        (kind, vector, factor): (InterventionKind, usize, f32),
        positions: &Range<usize>,
    ) {
        self.sites[site.number()].push(InterventionEntry {
            kind: kind as u32,
            first_position: positions.start as u32,
            positions: positions.len() as u32,
            vector: vector as u32,
            first_column: columns.start as u32,
            columns: columns.len() as u32,
            factor,
            reserved: 0,
        });
    }

    /// Where vectors begin that are put after the others.
    fn vectors(&mut self, values: impl Iterator<Item = f32>) -> usize {
        let begin = self.layout.vectors + self.vectors.len();
        self.vectors.extend(values);
        begin
    }

    fn numbers(self) -> Result<Numbers> {
        let Self { layout, sites, vectors, hidden } = self;
        let count: usize = sites.iter().map(Vec::len).sum();
        let most = MOST_INTERVENTIONS;
        if count > most {
            return Err(Error::options(format!(
                "interventions cover {count} runs of positions, with one for each vector of a set; a call may have {most}: \
                 give fewer positions"
            )));
        }
        if vectors.len() > most * hidden {
            let have = vectors.len();
            return Err(Error::options(format!(
                "the vectors of interventions have {have} numbers; a call may have {most} × {hidden}: give fewer positions"
            )));
        }
        let mut entries = vec![0u32; layout.entries];
        let mut first = 0;
        for (site, own) in sites.iter().enumerate() {
            entries[2 * site..2 * site + 2].copy_from_slice(&[first, own.len() as u32]);
            first += own.len() as u32;
        }
        let words = sites.iter().flatten().flat_map(|entry| bytemuck::cast::<_, [u32; 8]>(*entry));
        entries.extend(words);
        Ok(Numbers { entries, vectors, vectors_at: layout.vectors as u64 * 4 })
    }
}

fn refuse<T>(index: usize, what: impl std::fmt::Display) -> Result<T> {
    Err(Error::options(format!("interventions[{index}]: {what}")))
}

/// The site of a place, and its columns there.
fn site_of(model: &Model, index: usize, place: Place) -> Result<(InterventionSite, Range<usize>)> {
    let architecture = &model.layout().architecture;
    let (layers, hidden) = (architecture.layers.len(), architecture.hidden);
    let (layer, most) = match place {
        Place::Residual(layer) => (layer, layers),
        Place::Attention(layer) | Place::Mlp(layer) | Place::Head { layer, .. } => {
            (layer, layers - 1)
        }
    };
    if layer > most {
        return refuse(index, format!("layer is {layer}; here it must be from 0 to {most}"));
    }
    let of = architecture.layers.get(layer);
    let (attention, mlp) = (of.and_then(Layer::heads), of.and_then(|it| it.mlp.as_ref()));
    let lacks = match place {
        Place::Attention(_) | Place::Head { .. } if attention.is_none() => "attention",
        Place::Mlp(_) if mlp.is_none() => "feed-forward block",
        _ => "",
    };
    if !lacks.is_empty() {
        return refuse(index, format!("layer {layer} has no {lacks}"));
    }
    Ok(match place {
        Place::Residual(layer) => (InterventionSite::Residual(layer), 0..hidden),
        Place::Attention(layer) => (InterventionSite::Attention(layer), 0..hidden),
        Place::Mlp(layer) => (InterventionSite::Mlp(layer), 0..hidden),
        Place::Head { layer, head } => {
            let (heads, width) = attention.map_or((0, 0), |it| (it.heads, it.head_dim));
            if head >= heads {
                let last = heads.saturating_sub(1);
                return refuse(index, format!("head is {head}; it must be from 0 to {last}"));
            }
            (InterventionSite::Heads(layer), head * width..(head + 1) * width)
        }
    })
}

impl Model {
    /// Interventions of a call: in the order given where several are at one place.
    ///
    /// # Errors
    /// `invalid-options` for a layer, head or position that there is not, for vectors of another width, numbers that are not
    /// finite, and more than a call may have.
    pub fn interventions(&self, all: &[Intervention]) -> Result<Interventions> {
        let architecture = &self.layout().architecture;
        let (layers, hidden) = (architecture.layers.len(), architecture.hidden);
        let layout = InterventionLayout::new(layers, hidden);
        let sites = vec![vec![]; InterventionSite::count(layers)];
        let mut writer = Writer { layout, sites, vectors: vec![], hidden };
        for (index, intervention) in all.iter().enumerate() {
            self.add_intervention(&mut writer, index, intervention)?;
        }
        Ok(self.interventions.borrow_mut().hold(writer.numbers()?))
    }

    fn add_intervention(&self, to: &mut Writer, index: usize, of: &Intervention) -> Result<()> {
        let Intervention { place, change, positions } = of;
        let (site, columns) = site_of(self, index, *place)?;
        let most = self.config().max_position_embeddings;
        if let Some(first) = positions.iter().map(|run| run.start).max().filter(|at| *at >= most) {
            return refuse(index, format!("position {first} is not below the model's {most}"));
        }
        // The stream of a model that has divided it: vectors are divided as well.
        let divided = !matches!(place, Place::Head { .. });
        let stream = self.layout().architecture.stream_scale.filter(|_| divided).unwrap_or(1.0);
        let width = columns.len();
        let all = 0..u32::MAX as usize;
        let runs = if positions.is_empty() { std::slice::from_ref(&all) } else { positions };
        let set = matches!(change, Change::Set(_));
        let (kind, vector, factor) = match change {
            Change::Scale(factor) => (InterventionKind::Scale, &[][..], *factor),
            Change::Add { vector, strength } => (InterventionKind::Add, &vector[..], *strength),
            Change::Project { vector, strength } => {
                (InterventionKind::Project, &vector[..], -*strength)
            }
            Change::Set(vector) => (InterventionKind::Set, &vector[..], 1.0),
        };
        if !factor.is_finite() || vector.iter().any(|x| !x.is_finite()) {
            return refuse(index, "its numbers must be finite");
        }
        let rows: usize = positions.iter().map(Range::len).sum();
        let fits = vector.len() == width || set && rows > 0 && vector.len() == rows * width;
        if kind != InterventionKind::Scale && !fits {
            let each = if set { ", or as many for each position" } else { "" };
            let have = vector.len();
            return refuse(index, format!("its vector has {have} numbers; give {width}{each}"));
        }
        let squares: f64 = vector.iter().map(|x| f64::from(*x).powi(2)).sum();
        let divisor = if kind == InterventionKind::Project { squares.sqrt() } else { stream };
        if divisor == 0.0 {
            return refuse(index, "there is no direction in a vector of zeros");
        }
        let scaled = vector.iter().map(|x| (f64::from(*x) / divisor) as f32);
        let mut begin = to.vectors(scaled);
        let each = vector.len() > width;
        for run in runs {
            if !each {
                to.push(site, columns.clone(), (kind, begin, factor), run);
                continue;
            }
            for position in run.clone() {
                to.push(site, columns.clone(), (kind, begin, factor), &(position..position + 1));
                begin += width;
            }
        }
        Ok(())
    }
}
