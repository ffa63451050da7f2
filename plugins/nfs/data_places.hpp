// SPDX-License-Identifier: Apache-2.0
// Where a client of NFS connects to for the memory of its layouts.
#pragma once

#include <verbena/core/net/net.hpp>
#include <verbena/core/result.hpp>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::nfs {

/// The listener among `listeners` that a client reaches, where `local` is this host's address on the way to the client;
/// nothing if there is none. A listener on every address is yielded with `local` in its place.
std::string universal_address_of(std::span<const net::endpoint> listeners, const net::endpoint& local);

/// The listeners of a data server, as clients are told of them (RFC 5665). Any thread.
class data_places {
public:
    /// Once, when the listeners are open.
    void set(std::vector<net::endpoint> listeners);
    /// For the client at `peer`, as rpc::peer::address has it. Empty where it reaches none: all listeners are of the
    /// other family, or on loopback while the client is elsewhere, or its address is no IP address. Where there are
    /// several, or one is on every address, this asks the kernel for the way to the client; no packet is sent. Errors: where
    /// that can't be asked at the moment; EAGAIN: the listeners are not open yet.
    result<std::string> universal_address_for(std::string_view peer) const;

private:
    std::unique_ptr<const std::vector<net::endpoint>> kept_;
    std::atomic<const std::vector<net::endpoint>*> listeners_ = nullptr; // kept_, once it is set
};

} // namespace verbena::nfs
