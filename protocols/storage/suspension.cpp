// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/suspension.hpp>

#include <thread>
#include <utility>

namespace verbena::storage {

suspension_step ended_step(std::string failure)
{
    return [text = std::move(failure)] { return std::optional(text); };
}

std::string_view to_string(suspension::state s) noexcept
{
    switch (s) {
    case suspension::state::served: return "served";
    case suspension::state::draining: return "draining";
    case suspension::state::syncing: return "syncing";
    case suspension::state::letting_go: return "letting_go";
    case suspension::state::suspended: return "suspended";
    case suspension::state::coming_back: return "coming_back";
    case suspension::state::restoring: return "restoring";
    }
    return "?";
}

namespace {

std::int64_t seconds_since_1970()
{
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// What is to be said of it behind something else that failed.
template<class F>
std::string what_failed(F f)
{
    try {
        (void)f();
    } catch (const std::exception& e) {
        return std::string(". ") + e.what();
    }
    return {};
}

std::string seconds(duration d)
{
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(d).count()) + " s";
}

} // namespace

suspension::waiting suspension::asleep()
{
    return {[] { return time_point(std::chrono::steady_clock::now().time_since_epoch()); },
            [](duration d) { std::this_thread::sleep_for(d); }};
}

suspension::suspension(suspendable& of, suspension_side* side, options o, waiting w)
    : of_(of), side_(side), options_(o), waiting_(std::move(w))
{
}

std::optional<std::int64_t> suspension::since() const noexcept
{
    const std::int64_t since = since_.load(std::memory_order_acquire);
    return since == 0 ? std::nullopt : std::optional(since);
}

void suspension::pause()
{
    if (stop_.stop_requested())
        throw suspension_failure("this program stops");
    waiting_.wait(options_.pause);
}

void suspension::finish(const suspension_step& step, duration patience, const char* what)
{
    const time_point until = waiting_.now() + patience;
    for (;;) {
        if (const auto ended = step()) {
            if (!ended->empty())
                throw suspension_failure(*ended);
            return;
        }
        if (waiting_.now() >= until)
            throw suspension_failure(std::string(what) + " has not ended within " + seconds(patience) +
                                     "; does its disk hang?");
        pause();
    }
}

void suspension::hold()
{
    finish([this] { return of_.hold(); }, options_.patience, "a look at its root");
}

// A client that does not answer loses its lease, and hears so as its delegation is recalled.
void suspension::ask_leases_back()
{
    of_.want_leases();
    for (const time_point until = waiting_.now() + options_.lease_patience;
         of_.leases() != 0 && waiting_.now() < until;)
        pause();
}

void suspension::drain()
{
    of_.shut();
    const time_point until = waiting_.now() + options_.patience;
    // What shards say now, each of them was asked behind shut().
    for (suspendable::calls left = of_.calls_under_way(); !left.ended(); left = of_.calls_under_way()) {
        if (waiting_.now() >= until) {
            std::string text = std::to_string(left.running) + " calls have not ended within " +
                               seconds(options_.patience) +
                               "; look at `verbena admin requests`: does its disk hang?";
            for (const unsigned shard : left.silent)
                text += " Shard " + std::to_string(shard) + " does not answer.";
            throw suspension_failure(text);
        }
        pause();
    }
}

void suspension::let_go()
{
    of_.let_go();
    const time_point until = waiting_.now() + options_.patience;
    for (;;) {
        try {
            return finish(of_.still_open(), options_.patience, "a look at what is open there");
        } catch (const suspension_failure&) {
            if (waiting_.now() >= until || stop_.stop_requested())
                throw;
        }
        pause();
    }
}

void suspension::suspend(std::stop_token stop)
{
    stop_ = std::move(stop);
    if (now() != state::served)
        throw suspension_failure("it is not served now, but " + std::string(to_string(now())) +
                                 (now() == state::suspended ? ": resume it first" : ": wait"));
    hold();
    enum class undone_by : std::uint8_t { opening, locking_again, coming_back } how = undone_by::opening;
    try {
        finish(of_.find_nameless(), options_.patience, "a look for files without names");
        if (side_ != nullptr)
            finish(side_->recall(), options_.recall_patience, "the recall of what clients use without calls");
        ask_leases_back();
        // What is dirty by now takes its time while nobody waits.
        finish(of_.sync(), options_.recall_patience, "a sync of its file system");
        state_ = state::draining;
        drain();
        // Clients may have taken some of that again meanwhile, by which they write past calls.
        if (side_ != nullptr)
            finish(side_->recall(), options_.patience, "the recall of what clients took again meanwhile");
        state_ = state::syncing;
        finish(of_.sync(), options_.patience, "a sync of its file system");
        // Nobody but processes of this host has taken a name since.
        finish(of_.find_nameless(), options_.patience, "a look for files without names");
        state_ = state::letting_go;
        how = undone_by::locking_again;
        if (side_ != nullptr)
            finish(side_->let_go_of_locks(), options_.patience, "the end of locks");
        how = undone_by::coming_back;
        let_go();
    } catch (const std::exception& e) { // std::bad_alloc among them
        if (how == undone_by::coming_back)
            come_back_after(e.what());
        of_.unshut();
        of_.release();
        std::string why = e.what();
        if (how == undone_by::locking_again)
            why += what_failed([this] { return restore(); });
        state_ = state::served;
        throw suspension_failure(why);
    }
    since_ = seconds_since_1970();
    state_ = state::suspended;
}

void suspension::come_back()
{
    state_ = state::coming_back;
    try {
        finish(of_.come_back(), options_.patience, "the look at its root");
    } catch (const std::exception&) {
        if (of_.give_up())
            throw;
    }
}

// Nothing stays half suspended; but a file system that can't be opened again is gone, as `resume` will tell.
void suspension::come_back_after(const std::string& why)
{
    try {
        come_back();
    } catch (const std::exception& e) {
        since_ = seconds_since_1970();
        state_ = state::suspended;
        throw suspension_failure(
            why + ". It is suspended now all the same, since it could not be served again: " + e.what() +
            ". Resume it when that is mended");
    }
    throw suspension_failure(why + what_failed([this] { return restore(); }));
}

restored_state suspension::restore()
{
    state_ = state::restoring;
    const auto told = std::make_shared<restored_state>();
    std::string failed;
    if (side_ != nullptr) {
        try {
            finish(side_->restore(told), options_.restore_patience, "the look for what clients had");
        } catch (const std::exception& e) {
            failed = e.what();
        }
    }
    since_ = 0;
    state_ = state::served;
    if (!failed.empty())
        throw suspension_failure("it is served again, but " + failed);
    return *told;
}

restored_state suspension::resume(std::stop_token stop)
{
    stop_ = std::move(stop);
    if (now() != state::suspended)
        throw suspension_failure("it is not suspended, but " + std::string(to_string(now())));
    try {
        come_back();
    } catch (const std::exception& e) {
        state_ = state::suspended;
        throw suspension_failure(e.what());
    }
    return restore();
}

} // namespace verbena::storage
