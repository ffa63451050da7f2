// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/files/table_commons.hpp>

#include "client_card.hpp"

#include <cassert>

namespace verbena::files {

table_commons::table_commons(const siphash_key& key, unsigned homes)
    : key_(key),
      homes_(homes),
      presence_(key),
      operations_(key),
      clients_(std::make_unique<detail::client_cards>())
{
    assert(homes > 0 && homes <= most_homes && "so many tables can't be told apart");
}

table_commons::~table_commons() = default;

} // namespace verbena::files
