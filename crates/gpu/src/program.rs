//! Installed plans and their replay, without a word of wgpu: a device encodes them into its passes, and tests count
//! what that takes. Nothing is made, looked up or compiled here.

use super::cuts::Cuts;
use super::{PlanId, Replay};
use crate::error::Result;
use crate::kernels::Grid;
use crate::plan::{Cost, Dispatch, Plan, Range};
use std::cell::{Ref, RefCell};
use std::rc::Rc;

/// A dispatch, whose pipeline and bindings its program has.
#[derive(Debug)]
struct InstalledDispatch {
    /// Index into [`Program::pipelines`].
    pipeline: usize,
    /// Index into [`Program::bindings`].
    group: usize,
    grid: Grid,
    range: Range,
    /// For splitting.
    cost: Cost,
}

impl InstalledDispatch {
    fn new(plan: &Plan, dispatch: &Dispatch, group: usize) -> Self {
        Self {
            pipeline: dispatch.kernel,
            group,
            grid: plan.kernels[dispatch.kernel].grid,
            range: dispatch.range,
            cost: dispatch.cost,
        }
    }
}

/// An installed plan over a device's pipelines and bindings.
#[derive(Debug)]
pub struct Program<P, B> {
    /// One for each kernel.
    pipelines: Vec<P>,
    dispatches: Vec<InstalledDispatch>,
    /// One for each bind group.
    pub bindings: RefCell<Vec<B>>,
    /// The batch that costs refer to.
    tokens: usize,
    schedule: RefCell<ReplaySchedule>,
}

/// The dispatches that have work to do for some number of rows.
#[derive(Debug, Default)]
pub struct ReplaySchedule {
    rows: Option<usize>,
    pub dispatches: Vec<Scheduled>,
}

impl ReplaySchedule {
    /// Those from this dispatch of the plan on.
    fn from(&self, first: usize) -> impl Iterator<Item = &Scheduled> {
        self.dispatches.iter().filter(move |(index, _)| *index >= first)
    }
}

/// Index of a dispatch into its plan's, and its workgroups.
pub type Scheduled = (usize, [u32; 2]);

/// What replays are encoded into.
pub trait Encoder<P, B> {
    /// Most workgroups of a dispatch in one dimension.
    fn most_groups(&self) -> u32;
    /// A schedule is about to be built.
    fn schedules(&mut self);
    fn set_pipeline(&mut self, pipeline: &P);
    fn set_bindings(&mut self, bindings: &B);
    fn dispatch(&mut self, groups: [u32; 2]);
    /// Ends the submit, and begins another, which has no pipeline and no bindings set.
    fn cut(&mut self);
    /// As [`Self::cut`], with the copy of what is read at the end of the submit.
    fn cut_behind_copy(&mut self) -> Result<()>;
}

impl<P, B> Program<P, B> {
    pub fn new(plan: &Plan, pipelines: Vec<P>, bindings: Vec<B>) -> Self {
        let grouped = plan.dispatches.iter().zip(plan.groups());
        let dispatches =
            grouped.map(|(dispatch, group)| InstalledDispatch::new(plan, dispatch, group));
        Self {
            pipelines,
            dispatches: dispatches.collect(),
            bindings: RefCell::new(bindings),
            tokens: plan.tokens,
            schedule: RefCell::default(),
        }
    }

    /// Number of dispatches, those without work for some rows among them.
    pub fn dispatch_count(&self) -> usize {
        self.dispatches.len()
    }

    /// The pipeline of a dispatch.
    pub fn pipeline(&self, dispatch: usize) -> &P {
        &self.pipelines[self.dispatches[dispatch].pipeline]
    }

    /// The number of a dispatch's bind group.
    pub fn group(&self, dispatch: usize) -> usize {
        self.dispatches[dispatch].group
    }

    fn cost(&self, dispatch: usize, replay: &Replay) -> f64 {
        self.dispatches[dispatch].cost.of_rows(replay.rows, self.tokens, replay.keys)
    }

    /// The schedule for this many rows; another number than in the last replay builds it, and `builds` is called.
    ///
    /// `most`: workgroups of a dispatch in one dimension.
    pub fn scheduled(
        &self,
        rows: usize,
        most: u32,
        builds: impl FnOnce(),
    ) -> Result<Ref<'_, ReplaySchedule>> {
        if self.schedule.borrow().rows != Some(rows) {
            builds();
            let mut schedule = self.schedule.borrow_mut();
            let ReplaySchedule { rows: built, dispatches } = &mut *schedule;
            *built = None;
            dispatches.clear();
            for (index, dispatch) in self.dispatches.iter().enumerate() {
                let groups = dispatch.grid.resolve(dispatch.range.rows_of(rows), most)?;
                if let Some(groups) = groups {
                    dispatches.push((index, groups));
                }
            }
            *built = Some(rows);
        }
        Ok(self.schedule.borrow())
    }
}

/// Finds the program of an installed plan.
pub(crate) type FindProgram<'a, P, B> = &'a dyn Fn(PlanId) -> Result<Rc<Program<P, B>>>;

/// Encodes replays one after the other, in `submits` submits of about equal cost. Nothing is allocated here that
/// grows with dispatches.
pub fn encode<P, B>(
    replays: &[Replay],
    submits: usize,
    find: FindProgram<'_, P, B>,
    encoder: &mut impl Encoder<P, B>,
) -> Result<()> {
    let total = if submits > 1 { cost(replays, find, encoder)? } else { 0.0 };
    let mut cuts = Cuts::new(total, submits);
    for replay in replays {
        let program = find(replay.plan)?;
        let bindings = program.bindings.borrow();
        let (mut set, mut bound) = (None, None);
        let most = encoder.most_groups();
        let schedule = program.scheduled(replay.rows, most, || encoder.schedules())?;
        let mut copy_before = replay.copy_before.filter(|_| submits == 1);
        for &(index, groups) in schedule.from(replay.from) {
            let early = submits == 1 && replay.cuts_before(index);
            if copy_before.is_some_and(|first| index >= first) {
                copy_before = None;
                encoder.cut_behind_copy()?;
                (set, bound) = (None, None);
            } else if early || (submits > 1 && cuts.before(program.cost(index, replay))) {
                encoder.cut();
                (set, bound) = (None, None);
            }
            let pipeline = program.dispatches[index].pipeline;
            if set.replace(pipeline) != Some(pipeline) {
                encoder.set_pipeline(&program.pipelines[pipeline]);
            }
            let group = program.group(index);
            if bound.replace(group) != Some(group) {
                encoder.set_bindings(&bindings[group]);
            }
            encoder.dispatch(groups);
        }
    }
    Ok(())
}

/// Cost of the replays' dispatches that have work to do.
fn cost<P, B>(
    replays: &[Replay],
    find: FindProgram<'_, P, B>,
    encoder: &mut impl Encoder<P, B>,
) -> Result<f64> {
    let mut sum = 0.0;
    for replay in replays {
        let program = find(replay.plan)?;
        let most = encoder.most_groups();
        let schedule = program.scheduled(replay.rows, most, || encoder.schedules())?;
        sum += schedule.from(replay.from).map(|&(i, _)| program.cost(i, replay)).sum::<f64>();
    }
    Ok(sum)
}
