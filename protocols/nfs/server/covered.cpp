// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/covered.hpp>

#include <verbena/core/combine.hpp>
#include <verbena/core/event.hpp>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace verbena::nfs {

namespace {

bool is_less(const storage::handle& one, const storage::handle& other) noexcept
{
    return std::ranges::lexicographical_compare(one.bytes(), other.bytes());
}

bool has(const std::vector<storage::handle>& sorted, const storage::handle& file) noexcept
{
    return std::ranges::binary_search(sorted, file, is_less);
}

// What is not there is covered by nobody. Of another error nothing is known.
bool leads_nowhere(const error& why) noexcept
{
    return why == storage::errc::crosses_mount || why.errno_value() == ENOENT || why.errno_value() == ENOTDIR;
}

} // namespace

/// Of one outer export.
struct covered_directories::known {
    struct place {
        storage::handle directory; // that is covered
        const export_options* inner = nullptr;
        std::vector<storage::handle> above; // what leads there, from the root on
    };
    explicit known(const export_options& o) noexcept : outer(o) {}
    const place* of(const export_options& inner) const noexcept
    {
        const auto found = std::ranges::find(places, &inner, &place::inner);
        return found != places.end() ? &*found : nullptr;
    }

    const export_options& outer;
    std::vector<place> places;          // sorted by handle
    std::vector<storage::handle> above; // all of theirs, sorted
    std::optional<time_point> looked_at;
    bool is_looking = false;
    time_point waits_until; // while it is
    event over;
};

covered_directories::covered_directories(const export_table& exports, const shard* here)
    : exports_(exports), aside_(here != nullptr ? &here->tasks() : nullptr)
{
    if (here == nullptr || !here->reactor().on_its_thread())
        return;
    for (const export_options& outer : exports_.all()) {
        if (exports_.has_nested(outer)) {
            const std::shared_ptr<known> k = known_of(outer);
            k->is_looking = true;
            k->waits_until = here->reactor().now() + patience;
            aside_->spawn(&covered_directories::find_all, std::cref(exports_), k);
        }
    }
}

covered_directories::~covered_directories() = default;

std::shared_ptr<covered_directories::known> covered_directories::known_of(const export_options& outer)
{
    auto& k = known_[&outer];
    if (!k)
        k = std::make_shared<known>(outer);
    return k;
}

const covered_directories::known* covered_directories::find(const export_options& outer) const noexcept
{
    if (known_.empty())
        return nullptr;
    const auto found = known_.find(&outer);
    return found != known_.end() ? found->second.get() : nullptr;
}

task<void> covered_directories::look(const export_options& outer)
{
    if (!exports_.has_nested(outer))
        co_return;
    const task_context& context = co_await current_context();
    const time_point now = context.shard->clock().now();
    const std::shared_ptr<known> k = known_of(outer);
    if (k->looked_at && now - *k->looked_at < look_again)
        co_return;
    if (!k->is_looking) {
        k->is_looking = true;
        k->waits_until = now + patience;
        k->over.reset();
        if (aside_ != nullptr)
            aside_->spawn(&covered_directories::find_all, std::cref(exports_), k);
        else
            co_await find_all(exports_, k);
    }
    // One that has been waited for in vain is not waited for again.
    if (k->is_looking && now < k->waits_until) {
        const auto wait = [](std::shared_ptr<known> of) -> task<result<bool>> {
            const bool ended = co_await of->over.wait();
            co_return ended;
        };
        task<result<bool>> waiting = wait(k);
        (void)co_await with_timeout(k->waits_until - now, std::move(waiting));
    }
}

// With the rights of the process, since it is for all callers.
task<void> covered_directories::find_all(const export_table& exports, std::shared_ptr<known> k)
{
    storage::file_backend& files = *k->outer.backend;
    storage::request request;
    request.who = storage::credential(0, 0);
    std::vector<known::place> places;
    for (const export_table::nest& each : exports.nests_of(k->outer)) {
        known::place made;
        made.inner = each.inner;
        made.directory = files.root();
        std::string_view rest = each.path;
        for (auto name = next_component(rest); !name.empty(); name = next_component(rest)) {
            made.above.push_back(made.directory);
            const auto next = co_await files.lookup(request, made.directory, name);
            if (next) {
                made.directory = next->found.handle;
                continue;
            }
            made.directory = storage::handle();
            const known::place* const before = leads_nowhere(next.error()) ? nullptr : k->of(*each.inner);
            if (before != nullptr)
                made = *before;
            break;
        }
        // A file covers nothing. Whoever may write there can link another one's to that name, which is not stale for it.
        if (!made.directory.empty()) {
            const auto attrs = co_await files.getattr(request, made.directory);
            if (attrs && attrs->type != storage::file_type::directory)
                made.directory = storage::handle();
        }
        if (!made.directory.empty())
            places.push_back(std::move(made));
    }
    std::ranges::sort(places, is_less, &known::place::directory);
    std::vector<storage::handle> above;
    for (const known::place& each : places)
        above.insert(above.end(), each.above.begin(), each.above.end());
    std::ranges::sort(above, is_less);
    const auto repeats = std::ranges::unique(above);
    above.erase(repeats.begin(), repeats.end());
    k->places = std::move(places);
    k->above = std::move(above);
    const task_context& context = co_await current_context();
    k->looked_at = context.shard->clock().now();
    k->is_looking = false;
    k->over.set();
}

const export_options* covered_directories::at(const export_options& outer,
                                              const storage::handle& file) const noexcept
{
    const known* const k = find(outer);
    if (k == nullptr)
        return nullptr;
    const auto found = std::ranges::lower_bound(k->places, file, is_less, &known::place::directory);
    return found != k->places.end() && found->directory == file ? found->inner : nullptr;
}

bool covered_directories::is_above(const export_options& outer,
                                   const storage::handle& directory) const noexcept
{
    const known* const k = find(outer);
    return k != nullptr && has(k->above, directory);
}

bool covered_directories::must_stay(const export_options& outer,
                                    const storage::handle& directory) const noexcept
{
    return at(outer, directory) != nullptr || is_above(outer, directory);
}

} // namespace verbena::nfs
