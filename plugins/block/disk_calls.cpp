// SPDX-License-Identifier: Apache-2.0
#include "disk_calls.hpp"

#include <verbena/core/module/reload.hpp>
#include <verbena/core/module/start_error.hpp>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace verbena::block {

namespace {

using clock = std::chrono::steady_clock;

// Closes a device on its lane. Made with the device, since its end can't fail for want of memory.
class closing final : public blocking_pool::job {
public:
    explicit closing(blocking_pool& lane) : lane_(lane) {}
    ~closing() = default;
    closed_flag flag() const noexcept { return is_closed_; }
    void begin(storage::opened_block* block) noexcept
    {
        block_.reset(block);
        if (!lane_.submit(*this)) // the lanes have ended, and with them all who could wait for long
            execute();
    }
    void execute() noexcept override
    {
        block_.reset();
        is_closed_->store(true, std::memory_order_release);
        delete this;
    }
    void deliver() noexcept override {}

private:
    blocking_pool& lane_;
    std::unique_ptr<storage::opened_block> block_;
    const std::shared_ptr<std::atomic<bool>> is_closed_ = std::make_shared<std::atomic<bool>>(false);
};

// "/srv/disk.img (fileblk)"
std::string where(const device_config& d)
{
    const std::vector<setting> of_backend = d.backend->settings();
    const auto main = std::ranges::find(of_backend, true, &setting::is_main);
    return main == of_backend.end() ? "the back end " + d.backend_name
                                    : reload_text(d.values, main->name) + " (" + d.backend_name + ')';
}

std::string seconds_of(clock::duration time)
{
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

constexpr const char* cure = ": see what the disk waits for (dmesg, its cable, its network), or leave the "
                             "device out; if the disk answers "
                             "later, the device is closed again";

} // namespace

blocking_pool& disk_calls::lane_of(const device_config& d)
{
    // A disk that hangs holds up its own device and no other.
    const std::lock_guard lock(lanes_mutex_);
    blocking_pool*& lane = lanes_[d.name];
    if (lane == nullptr) {
        const result<blocking_pool*> made = shards_.add_lane(d.told);
        if (!made)
            throw_start_failure(made.error(), d.told + ": " + made.error().message());
        lane = *made;
    }
    return *lane;
}

served_list disk_calls::open(std::span<const device_config> wanted)
{
    using opened = std::shared_ptr<served_device>;
    // All are looked at before any call begins: what was begun is waited for below, or nobody would close it.
    std::vector<blocking_pool*> lanes;
    for (const device_config& d : wanted)
        at_place_of_start(d.place, [&] {
            blocking_pool& lane = lane_of(d);
            // No queue grows behind a disk that hangs, however often a reload is tried.
            if (const auto longest = lane.look().longest; longest >= patience_)
                throw start_error(d.told + ": " + where(d) + " has not answered for " + seconds_of(longest) +
                                  ", since an earlier start of this device or its end" + cure);
            lanes.push_back(&lane);
        });
    std::vector<begun_call<opened>> calls;
    calls.reserve(wanted.size());
    served_list all;
    all.reserve(wanted.size());
    std::exception_ptr failed, not_begun;
    try {
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            calls.push_back(begin_call(*lanes[i], [d = wanted[i], &lane = *lanes[i], &metrics = metrics_] {
                storage::open_block_context context{d.told, d.name, metrics, lane};
                context.read_only = d.read_only;
                auto block = std::make_unique<storage::opened_block>(d.backend->open(d.values, context));
                for (auto f = d.filters.rbegin(); f != d.filters.rend(); ++f)
                    f->module->put_on(*block, f->values, context);
                auto out = std::make_shared<served_device>();
                out->config = d;
                auto end = std::make_unique<closing>(lane);
                out->is_closed = end->flag();
                out->is_asked = std::make_shared<std::atomic<bool>>(false);
                // The deleter runs also where this throws.
                out->block = std::shared_ptr<storage::opened_block>(
                    block.release(), [c = end.release()](storage::opened_block* b) { c->begin(b); });
                return out;
            }));
            // Disks that answer are opened one after the other, by one thread, in the order of the list; only those that
            // hang are waited for together.
            (void)idles_within(*lanes[i], turn_);
        }
    } catch (...) { // no memory: what was begun is waited for all the same
        not_begun = std::current_exception();
    }
    const clock::time_point until = clock::now() + patience_;
    for (std::size_t i = 0; i < calls.size(); ++i) {
        try {
            at_place_of_start(wanted[i].place, [&] {
                auto made = calls[i].wait_until(until);
                if (!made)
                    throw start_error(wanted[i].told + ": " + where(wanted[i]) + " does not answer for " +
                                      seconds_of(patience_) + cure);
                all.push_back(std::move(*made));
            });
        } catch (...) {
            if (!failed)
                failed = std::current_exception();
        }
    }
    if (!failed)
        failed = not_begun;
    if (failed) {
        close(std::move(all));
        std::rethrow_exception(failed);
    }
    return all;
}

result<std::uint64_t> disk_calls::size_there(const served_device& d)
{
    if (d.is_asked->exchange(true))
        return error::from_errno(EBUSY,
                                 "the disk has not answered the question before; see what it waits for");
    auto ask = [block = d.block, is_asked = d.is_asked] {
        const auto there = block->size->size_there();
        is_asked->store(false);
        return there;
    };
    const auto there = run_within(lane_of(d.config), patience_, std::move(ask));
    if (!there)
        return error::from_errno(ETIMEDOUT, "the disk does not answer; see what it waits for");
    return *there;
}

void disk_calls::close(served_list devices) const noexcept
{
    constexpr auto pause = std::chrono::milliseconds(2);
    const clock::time_point until = clock::now() + patience_;
    for (auto& d : devices) {
        if (!d)
            continue;
        const closed_flag is_closed = d->is_closed;
        d.reset();
        while (!is_closed->load(std::memory_order_acquire) && clock::now() < until)
            std::this_thread::sleep_for(pause);
    }
}

} // namespace verbena::block
