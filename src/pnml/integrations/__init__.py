"""Ways into and out of other packages for out-of-distribution detection, one module per package.

``pnml.integrations.pytorch_ood.PNML`` is a detector for code written for pytorch-ood, and
``pnml.integrations.openood.PNMLPostprocessor`` a postprocessor for OpenOOD's evaluator.
"""
