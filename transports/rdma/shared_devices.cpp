// SPDX-License-Identifier: Apache-2.0
#include "shared_devices.hpp"

#include "context.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>
#include <vector>

namespace verbena::rdma {

serial next_serial() noexcept
{
    static std::atomic<serial> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

class notice_box::message final : public remote_message {
public:
    message(std::shared_ptr<notice_box> to, const device_notice& n) : to_(std::move(to)), notice_(n) {}
    void deliver() noexcept override
    {
        const std::unique_ptr<message> self(this);
        if (to_->target_ != nullptr)
            to_->target_->on_notice(notice_);
    }

private:
    std::shared_ptr<notice_box> to_;
    device_notice notice_;
};

void notice_box::post(const std::shared_ptr<notice_box>& to, const device_notice& n)
{
    to->shard_.post_remote(*new message(to, n));
}

namespace shared_devices {
namespace {

struct entry {
    ibv_context* verbs;
    std::vector<std::shared_ptr<notice_box>> users;
    bool removed = false;
    bool closed = false;
};

struct table {
    std::mutex mutex;
    std::vector<entry> devices;
    // What rdma_get_devices() counted for us. Never given back: librdmacm must not close, nor an ibv_context be
    // another device's at the same address.
    std::vector<ibv_context**> pins;
};

table& all()
{
    static auto* const t = new table; // for the process: threads may outlive static destruction
    return *t;
}

entry& find(table& t, ibv_context* verbs)
{
    const auto i = std::ranges::find(t.devices, verbs, &entry::verbs);
    return i != t.devices.end() ? *i : t.devices.emplace_back(entry{verbs, {}});
}

// The ibv_context is librdmacm's, which doesn't close the last device of a host (44: it takes an empty list for an
// error). What it closes later is this.
void close_files(entry& e) noexcept
{
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0)
        return;
    (void)::dup3(nothing, e.verbs->async_fd, O_CLOEXEC);
    (void)::dup3(nothing, e.verbs->cmd_fd, O_CLOEXEC);
    ::close(nothing);
    e.closed = true;
}

} // namespace

void note_all()
{
    ibv_context** const list = ::rdma_get_devices(nullptr);
    if (list == nullptr)
        return;
    table& t = all();
    const std::lock_guard hold(t.mutex);
    bool any = false;
    for (ibv_context** i = list; *i != nullptr; ++i) {
        any = any || std::ranges::find(t.devices, *i, &entry::verbs) == t.devices.end();
        (void)find(t, *i);
    }
    if (any)
        t.pins.push_back(list);
    else
        ::rdma_free_devices(list);
}

bool enter(ibv_context* d, std::shared_ptr<notice_box> user)
{
    table& t = all();
    const std::lock_guard hold(t.mutex);
    entry& e = find(t, d);
    if (e.removed || e.closed)
        return false;
    e.users.push_back(std::move(user));
    return true;
}

void leave(ibv_context* d, const notice_box& user) noexcept
{
    table& t = all();
    const std::lock_guard hold(t.mutex);
    entry& e = find(t, d);
    const auto i = std::ranges::find(e.users, &user, &std::shared_ptr<notice_box>::get);
    if (i != e.users.end())
        e.users.erase(i);
    if (e.users.empty() && e.removed && !e.closed)
        close_files(e);
}

void mark_removed(ibv_context* d) noexcept
{
    table& t = all();
    const std::lock_guard hold(t.mutex);
    find(t, d).removed = true;
}

bool has_gone(const ibv_context* d) noexcept
{
    return ::access(d->device->dev_path, F_OK) != 0 && errno == ENOENT;
}

void close_unused() noexcept
{
    table& t = all();
    const std::lock_guard hold(t.mutex);
    for (entry& e : t.devices) {
        if (e.users.empty() && !e.closed && has_gone(e.verbs)) {
            e.removed = true;
            close_files(e);
        }
    }
}

void tell(const device_notice& n)
{
    table& t = all();
    const std::lock_guard hold(t.mutex);
    for (const auto& user : find(t, n.on).users)
        notice_box::post(user, n);
}

} // namespace shared_devices

} // namespace verbena::rdma
