#include "layers/facts.h"

#include <stdexcept>

namespace convnet {

void check_facts(const LayerFacts& facts, bool has_weights) {
  const auto refuse = [](bool contradiction, const char* message) {
    if (contradiction) throw std::logic_error(std::string("layer facts: ") + message);
  };
  const bool backward = facts.backward_reads != BackwardReads::neither || facts.backward_in_place;
  const bool fuses_neuron = facts.fuses_neuron != FusesNeuron::no;
  const bool end = facts.data || facts.cost;
  refuse(facts.data && facts.cost, "a data layer is no cost");
  refuse(end && (facts.function != LayerFunction::other || facts.neuron.kind != NeuronKind::ident ||
                 fuses_neuron),
         "a data layer or a cost has no function and fuses no neuron");
  refuse(end && (facts.division != Division::none || has_weights),
         "a data layer or a cost has no weights and is not divided");
  refuse(end && (facts.in_place || facts.backward_in_place || facts.cheap || !facts.differentiable),
         "a data layer or a cost does not work in place and is not recomputed");
  refuse(facts.data && backward, "a data layer has no backward");
  refuse(facts.data && (facts.data->matrix < 0 || facts.data->label_classes < 0),
         "a data layer has a matrix and no negative number of classes");
  refuse(facts.cost && facts.backward_reads == BackwardReads::output, "a cost has no output");
  refuse(facts.cost && facts.cost->values < 1, "a cost has at least one value");
  refuse(facts.in_place && facts.backward_reads == BackwardReads::inputs,
         "a layer that writes over its input cannot read it in backward");
  refuse(fuses_neuron && facts.backward_reads == BackwardReads::output,
         "a layer that fuses a neuron cannot read its own output in backward");
  refuse(fuses_neuron && facts.function != LayerFunction::other,
         "a layer that fuses a neuron is not joined with another neighbour");
  refuse(!facts.differentiable && (backward || has_weights),
         "a layer without a gradient has no backward and no weights");
  refuse(facts.division == Division::outputs && !has_weights,
         "only a layer with weights divides its outputs");
  refuse(facts.division == Division::as_inputs && has_weights,
         "a layer with weights is not divided as its inputs");
}

}  // namespace convnet
