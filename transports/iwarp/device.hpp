// SPDX-License-Identifier: Apache-2.0
// What all shards of an iWARP device share: its steering tags, and when a shard is done with them.
#pragma once

#include "steering.hpp"

#include <verbena/transports/iwarp.hpp>

#include <memory>

namespace verbena::iwarp {

class device_impl final : public device {
public:
    device_impl();
    const verbs::capabilities& query() const noexcept override { return capabilities_; }
    result<std::unique_ptr<verbs::protection_domain>> make_domain(std::string_view) override;
    std::unique_ptr<iwarp::context> make_context(reactor& shard, const iwarp::options& o) override;

    steering::quiescence& shards() noexcept { return shards_; }
    steering_table& table() noexcept { return table_; }

private:
    verbs::capabilities capabilities_;
    steering::quiescence shards_;
    steering_table table_{shards_};
};

} // namespace verbena::iwarp
