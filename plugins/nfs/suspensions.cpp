// SPDX-License-Identifier: Apache-2.0
#include "suspensions.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/module/settings.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/reactor/ask.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/files/under_way.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <future>
#include <stdexcept>
#include <utility>

namespace verbena::nfs {

namespace {

using errand = std::function<task<void>()>;

task<std::string> run_errand(errand what)
{
    std::string failed;
    try {
        task<void> doing = what();
        co_await doing;
    } catch (const std::exception& e) {
        failed = e.what();
    }
    co_return failed;
}

// Runs a task on a shard for a thread that is none. Whoever waits for it may give up. What it kept has gone when it has ended.
storage::suspension_step begin_errand(shard& on, errand what)
{
    auto begins = [what = std::move(what)](shard&) mutable { return run_errand(std::move(what)); };
    const std::shared_future<std::string> asked = begin_ask(on, std::move(begins)).share();
    return [asked]() -> std::optional<std::string> {
        if (asked.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
            return std::nullopt;
        try {
            return asked.get();
        } catch (const std::exception& e) { // no memory, or the shard has ended
            return e.what();
        }
    };
}

constexpr duration most_pause = std::chrono::seconds(1);

bool is_served(const storage::suspension* s) noexcept
{
    using state = storage::suspension::state;
    return s == nullptr || (s->now() != state::suspended && s->now() != state::coming_back);
}

} // namespace

std::string utc_text(std::int64_t seconds_since_1970)
{
    const auto at = static_cast<std::time_t>(seconds_since_1970);
    std::tm parts{};
    char text[32] = "";
    if (::gmtime_r(&at, &parts) != nullptr)
        std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

/// What the state layer does. Its steps are tasks of the clients' home, which visit the homes of files one after the other.
class suspensions::state_side final : public storage::suspension_side {
public:
    state_side(const suspensions& of, const entry& mine) : of_(of), mine_(mine) {}
    storage::suspension_step recall() override;
    storage::suspension_step let_go_of_locks() override;
    storage::suspension_step restore(std::shared_ptr<storage::restored_state> to) override;

private:
    const suspensions& of_;
    const entry& mine_;
    // Of the last let_go_of_locks().
    std::shared_ptr<std::atomic<bool>> goes_on_;
    storage::suspension_step letting_go_;
    std::shared_ptr<std::atomic<bool>> restores_; // of the last restore()
};

/// The back end as one of those that have one file system open: only the last of them lets it go as a whole, and sees to it that nothing
/// is left. Others' locks, and what they have open beneath its root, keep it until then.
class suspensions::member final : public storage::suspendable {
public:
    member(const suspensions& all, const entry& mine, storage::suspendable& own)
        : all_(all), mine_(mine), own_(own)
    {
    }
    std::optional<std::string> hold() override { return own_.hold(); }
    void release() noexcept override { own_.release(); }
    storage::suspension_step find_nameless() override { return own_.find_nameless(); }
    void want_leases() noexcept override { own_.want_leases(); }
    std::size_t leases() noexcept override { return own_.leases(); }
    void shut() noexcept override { own_.shut(); }
    void unshut() noexcept override { own_.unshut(); }
    calls calls_under_way() override { return own_.calls_under_way(); }
    storage::suspension_step sync() override { return own_.sync(); }
    void let_go() noexcept override;
    storage::suspension_step still_open() override;
    storage::suspension_step come_back() override { return own_.come_back(); }
    bool give_up() noexcept override { return own_.give_up(); }

private:
    const suspensions& all_;
    const entry& mine_;
    storage::suspendable& own_;
};

struct suspensions::entry : std::enable_shared_from_this<entry> {
    entry(const suspensions& all, const served_export& e, duration recall_patience)
        : exported(e.options), backend(e.backend), side(all, *this), back_end(e.backend->opened.suspension)
    {
        if (back_end == nullptr)
            return;
        as_member.emplace(all, *this, *back_end);
        storage::suspension::options o;
        o.recall_patience = recall_patience;
        by.emplace(*as_member, &side, o, storage::suspension::asleep());
    }
    const export_options exported; // its back end is there while `backend` is
    const std::weak_ptr<export_backend> backend;
    state_side side;
    storage::suspendable* const back_end;
    std::optional<member> as_member;
    std::optional<storage::suspension> by;
};

// Through another export a file of one that is suspended already may have been opened again.
void suspensions::member::let_go() noexcept
{
    if (!all_.has_served_others(mine_))
        for (const auto& other : all_.now())
            if (other.get() != &mine_ && other->exported.space == mine_.exported.space &&
                other->back_end != nullptr)
                other->back_end->let_go();
    own_.let_go();
}

storage::suspension_step suspensions::member::still_open()
{
    if (all_.has_served_others(mine_))
        return storage::ended_step();
    std::vector<storage::suspension_step> steps = {own_.still_open()};
    for (const auto& other : all_.now())
        if (other.get() != &mine_ && other->exported.space == mine_.exported.space &&
            other->back_end != nullptr)
            steps.push_back(other->back_end->still_open());
    return [left = std::move(steps)]() mutable -> std::optional<std::string> {
        while (!left.empty()) {
            const auto ended = left.back()();
            if (!ended || !ended->empty())
                return ended;
            left.pop_back();
        }
        return std::string();
    };
}

namespace {

task<void> recall_layouts(state_home* state, std::uint32_t space)
{
    const task_context& context = co_await current_context();
    const time_point until =
        context.shard->clock().now() + state->options().recall_time + state->options().fence_time;
    const std::function<bool(const storage::handle&)> all = [](const storage::handle&) { return true; };
    task<result<void>> making = state->make_way_in(space, files::operation::set_attributes, all, until);
    const result<void> made = co_await making;
    if (!made)
        throw std::runtime_error("clients have not given their layouts back: " + made.error().message());
}

task<void> let_go(state_home* state, std::uint32_t space, std::shared_ptr<std::atomic<bool>> goes_on)
{
    for (unsigned i = 0; i < state->homes() && *goes_on; ++i) {
        files::state_table* const table = &state->table(i);
        const auto call = [table, space, on = goes_on.get()] {
            return table->let_go_of_local_locks(space, *on);
        };
        task<void> going = state->where(i).run(call);
        co_await going;
    }
}

// `may_retry`: false while an export of the tree is suspended still, whose end is another look.
// `keep`: the back end, which a reload closes behind this, as behind a call.
task<void> take_again(state_home* state, std::shared_ptr<const export_options> exported,
                      std::shared_ptr<export_backend> keep, std::shared_ptr<storage::restored_state> to,
                      storage::suspension_step before, std::shared_ptr<std::atomic<bool>> goes_on,
                      std::function<bool()> may_retry)
{
    if (!keep)
        co_return;
    const export_ref at_work(*exported);
    // The locks of a file are taken behind their end, which may be late.
    while (before && !before()) {
        const bool goes_on = co_await sleep_for(std::chrono::milliseconds(5));
        if (!goes_on)
            co_return;
    }
    const auto is_there = [exported = exported.get()](const storage::handle& key) -> task<result<void>> {
        const auto named = files::open_file_key(key);
        storage::request asking;
        task<result<storage::attributes>> looking = exported->backend->getattr(asking, named->file);
        const auto seen = co_await looking;
        if (!seen)
            co_return seen.error();
        co_return result<void>();
    };
    const std::function<task<result<void>>(const storage::handle&)> look = is_there;
    for (unsigned i = 0; i < state->homes() && *goes_on; ++i) {
        files::state_table* const table = &state->table(i);
        const std::uint32_t space = exported->space;
        const auto files = [table, space, l = &look, t = to.get(), on = goes_on.get()] {
            return table->drop_lost_files(space, *l, *t, *on);
        };
        task<void> looking = state->where(i).run(files);
        co_await looking;
    }
    // Where a back end could not be asked at once, as its lane was full, it is asked until it answers.
    for (duration pause = std::chrono::milliseconds(50);; pause = std::min<duration>(2 * pause, most_pause)) {
        to->later = 0;
        for (unsigned i = 0; i < state->homes() && *goes_on; ++i) {
            files::state_table* const table = &state->table(i);
            const std::uint32_t space = exported->space;
            const auto locks = [table, space, t = to.get()] { return table->lock_locally_again(space, *t); };
            task<void> locking = state->where(i).run(locks);
            co_await locking;
        }
        if (to->later == 0 || !*goes_on || !may_retry())
            co_return;
        const bool may_go_on = co_await sleep_for(pause);
        if (!may_go_on)
            co_return;
    }
}

} // namespace

storage::suspension_step suspensions::state_side::recall()
{
    state_home* const state = of_.state_();
    if (restores_)
        restores_->store(false); // what it has not done yet, the next restore() does
    if (state == nullptr || !mine_.exported.pnfs)
        return storage::ended_step();
    return begin_errand(state->home(),
                        [state, space = mine_.exported.space, keep = mine_.shared_from_this()] {
                            return recall_layouts(state, space);
                        });
}

// Exports of one tree have their locks together, so the last of them lets go.
storage::suspension_step suspensions::state_side::let_go_of_locks()
{
    state_home* const state = of_.state_();
    goes_on_ = nullptr;
    if (state == nullptr || of_.has_served_others(mine_))
        return storage::ended_step();
    goes_on_ = std::make_shared<std::atomic<bool>>(true);
    letting_go_ = begin_errand(state->home(), [state, space = mine_.exported.space, on = goes_on_] {
        return let_go(state, space, on);
    });
    return letting_go_;
}

storage::suspension_step suspensions::state_side::restore(std::shared_ptr<storage::restored_state> to)
{
    state_home* const state = of_.state_();
    if (state == nullptr)
        return storage::ended_step();
    if (goes_on_)
        goes_on_->store(false);
    restores_ = std::make_shared<std::atomic<bool>>(true);
    const std::shared_ptr<const entry> mine = mine_.shared_from_this();
    errand work = [state, mine, keep = mine->backend.lock(), to = std::move(to), goes_on = restores_,
                   before = std::exchange(letting_go_, nullptr), all = &of_] {
        return take_again(state, std::shared_ptr<const export_options>(mine, &mine->exported), keep, to,
                          before, goes_on, [all, mine] { return !all->has_suspended_others(*mine); });
    };
    return begin_errand(state->home(), std::move(work));
}

suspensions::suspensions(const export_set& exports, std::function<state_home*()> state)
    : exports_(exports), state_(std::move(state))
{
}

suspensions::~suspensions() = default;

// Of the exports that are served now. A reload may have added some, and taken others away, which are not suspended then.
suspensions::entries suspensions::now() const
{
    const export_set::exports served = exports_.all();
    const std::lock_guard lock(known_mutex_);
    // Known without being held: a back end that is being closed must not end here.
    std::map<std::weak_ptr<export_backend>, std::shared_ptr<entry>, std::owner_less<>> before;
    for (auto& one : known_)
        before.emplace(one->backend, std::move(one));
    known_.clear();
    for (const auto& e : served) {
        const auto found = before.find(e->backend);
        known_.push_back(found != before.end() ? found->second
                                               : std::make_shared<entry>(*this, *e, recall_patience_));
    }
    return known_;
}

std::map<std::string, suspensions::status, std::less<>> suspensions::all() const
{
    std::map<std::string, status, std::less<>> of_each;
    for (const auto& e : now())
        if (e->by)
            of_each.emplace(e->exported.pseudo, status{e->by->now(), e->by->since(), e->exported.space});
    return of_each;
}

std::unique_lock<std::mutex> suspensions::hold_still()
{
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock)
        throw config_error("an export is just being suspended or resumed: reload when that is over");
    return lock;
}

std::shared_ptr<suspensions::entry> suspensions::find(const control_arguments& told)
{
    const std::string& wanted = *told.find("export");
    std::string names;
    for (const auto& e : now()) {
        if (e->exported.pseudo == wanted && e->by)
            return e;
        if (e->exported.pseudo == wanted)
            throw std::runtime_error("export " + printable(wanted) +
                                     ": its back end has no file system to let go; posixfs has one");
        names += (names.empty() ? "" : ", ") + printable(e->exported.pseudo);
    }
    throw std::runtime_error("no export " + printable(wanted) + "; there are " + names);
}

// Those of the same tree that are served: what they have open keeps the file system, too.
std::vector<std::string> suspensions::others_of(const entry& e) const
{
    std::vector<std::string> names;
    for (const auto& other : now())
        if (other.get() != &e && other->exported.space == e.exported.space &&
            is_served(other->by ? &*other->by : nullptr))
            names.push_back(other->exported.pseudo);
    return names;
}

bool suspensions::has_served_others(const entry& e) const
{
    const entries all = now();
    return std::ranges::any_of(all, [&e](const auto& other) {
        return other.get() != &e && other->exported.space == e.exported.space &&
               is_served(other->by ? &*other->by : nullptr);
    });
}

bool suspensions::has_suspended_others(const entry& e) const
{
    const entries all = now();
    return std::ranges::any_of(all, [&e](const auto& other) {
        return other.get() != &e && other->exported.space == e.exported.space &&
               !is_served(other->by ? &*other->by : nullptr);
    });
}

suspensions::turn suspensions::take_turn(const control_arguments& told)
{
    turn t;
    t.lock = std::unique_lock(mutex_, std::try_to_lock);
    if (!t.lock)
        throw std::runtime_error("an export is just being suspended or resumed: wait until that is over");
    t.of = find(told);
    t.keep = t.of->backend.lock();
    if (!t.keep)
        throw std::runtime_error("export " + printable(*told.find("export")) + " has just gone");
    return t;
}

control_answer suspensions::suspend(const control_arguments& told, std::stop_token stop)
{
    const turn now = take_turn(told);
    entry& e = *now.of;
    try {
        e.by->suspend(std::move(stop));
    } catch (const storage::suspension_failure& failed) {
        throw std::runtime_error("export " + printable(e.exported.pseudo) + ": " + failed.what());
    }
    log(log_level::warning, "nfs", "an export is suspended, and its clients wait until it is resumed",
        {{"export", e.exported.pseudo}});
    control_answer out;
    const auto since = e.by->since();
    out.rows.push_back(
        {e.exported.pseudo, since ? control_value(utc_text(*since)) : control_value(), others_of(e)});
    return out;
}

control_answer suspensions::resume(const control_arguments& told, std::stop_token stop)
{
    const turn now = take_turn(told);
    entry& e = *now.of;
    storage::restored_state has;
    try {
        has = e.by->resume(std::move(stop));
    } catch (const storage::suspension_failure& failed) {
        throw std::runtime_error("export " + printable(e.exported.pseudo) + ": " + failed.what());
    }
    log(log_level::info, "nfs", "an export is resumed",
        {{"export", e.exported.pseudo}, {"lost_files", has.lost_files}, {"lost_locks", has.lost_locks}});
    control_answer out;
    out.rows.push_back({e.exported.pseudo, std::uint64_t(has.files), std::uint64_t(has.locks),
                        std::uint64_t(has.lost_files), std::uint64_t(has.lost_locks), has.lost,
                        std::uint64_t(has.later)});
    return out;
}

std::vector<control_command> suspensions::commands()
{
    std::vector<control_command> all;
    control_command suspend;
    suspend.name = "suspend";
    suspend.help = "Lets the file system of an export go, so that it can be unmounted, while clients wait";
    suspend.columns = {"export", "suspended_since", "kept_by_exports"};
    suspend.arguments = {{"export", "the path of the export, as clients mount it", true}};
    suspend.single = true;
    suspend.work = [this](const control_arguments& told, std::stop_token stop) {
        return this->suspend(told, std::move(stop));
    };
    all.push_back(std::move(suspend));
    control_command resume;
    resume.name = "resume";
    resume.help = "Serves an export again that was suspended, and says what clients have lost";
    resume.columns = {"export", "files", "locks", "lost_files", "lost_locks", "lost", "later"};
    resume.arguments = {{"export", "the path of the export, as clients mount it", true}};
    resume.single = true;
    resume.work = [this](const control_arguments& told, std::stop_token stop) {
        return this->resume(told, std::move(stop));
    };
    all.push_back(std::move(resume));
    return all;
}

} // namespace verbena::nfs
