// SPDX-License-Identifier: Apache-2.0
// Hears of RDMA devices that the system takes away, from the kernel's own announcements (uevents).
//
// A driver without disassociate_ucontext (rxe of Linux 6.1) tells nothing to those who have its device open, and
// waits for them.
#pragma once

#include <verbena/core/reactor/io_watch.hpp>

#include <memory>
#include <string_view>

namespace verbena::rdma {

/// Whether a uevent says that the file of an RDMA device goes: "remove@/devices/.../infiniband_verbs/uverbs0".
constexpr bool is_removal(std::string_view uevent) noexcept
{
    uevent = uevent.substr(0, uevent.find('\0'));
    return uevent.starts_with("remove@") && uevent.find("/infiniband_verbs/uverbs") != std::string_view::npos;
}

class removal_watch final : private io_watch {
public:
    class observer {
    public:
        /// Some device goes. Called in the poll phase.
        virtual void on_device_removal() noexcept = 0;

    protected:
        ~observer() = default;
    };
    /// nullptr where the system gives no such socket, which is logged; then the connection manager's word is all there is.
    static std::unique_ptr<removal_watch> open(reactor& r, observer& o);
    removal_watch(reactor& r, int fd, observer& o) noexcept;
    ~removal_watch();

private:
    bool on_readable() noexcept override;
    void on_writable() noexcept override {}
    observer& observer_;
};

} // namespace verbena::rdma
